// Read by visits.py: each function returns a list of complaints, empty when all is well, but for the last two.
({
  // whatever sticks out of the window and cannot be scrolled inside a box of its own
  overflow() {
    const width = document.documentElement.clientWidth;
    if (document.documentElement.scrollWidth <= width) return [];
    const scrolls = (node) => node && node !== document.body &&
      (["auto", "scroll", "hidden", "clip"].includes(getComputedStyle(node).overflowX) || scrolls(node.parentElement));
    return [...document.querySelectorAll("body *")]
      .filter((node) => node.getBoundingClientRect().right > width + 1 && !scrolls(node.parentElement))
      .slice(0, 5).map((node) => `${node.tagName}.${node.className} is ${node.getBoundingClientRect().right}px wide`)
      .concat(`page is ${document.documentElement.scrollWidth}px wide, window ${width}px`);
  },

  // an image that is missing, or whose alt text is empty or its own file name
  images() {
    return [...document.querySelectorAll("img")].flatMap((image) => {
      const source = image.getAttribute("src"), alt = (image.getAttribute("alt") || "").trim(), problems = [];
      if (!image.complete || image.naturalWidth === 0) problems.push(`${source} does not load`);
      if (!alt || alt === source || /\.(png|svg|jpe?g)$/i.test(alt)) problems.push(`${source} has no alt text`);
      return problems;
    });
  },

  drawings() {
    return [...document.querySelectorAll("article svg[viewBox]")]
      .filter((node) => !node.getAttribute("aria-label") && !node.closest("[aria-hidden=true], button, summary, .sd-summary-title, mjx-container"))
      .map((node) => `${node.outerHTML.slice(0, 80)} has no aria-label`);
  },

  mathematics() {
    const sources = document.querySelectorAll("article .math").length;
    const rendered = document.querySelectorAll("article mjx-container").length;
    const problems = [...document.querySelectorAll("mjx-merror, [data-mml-node=merror], mjx-container [data-mjx-error]")]
      .map((node) => `TeX error: ${node.closest("mjx-container").textContent} ${node.getAttribute("data-mjx-error") || ""}`);
    return sources > 0 && rendered < sources ? problems.concat(`${rendered} of ${sources} formulas rendered`) : problems;
  },

  // a figure melts into the page and has the colours that it was drawn in, by night their hues; a photograph stands as it is, on white
  colours() {
    const night = document.documentElement.dataset.theme === "dark";
    const turned = "invert(1) hue-rotate(180deg)";
    return [...document.querySelectorAll(".bd-article :is(figure, .cell_output) img")].flatMap((image) => {
      const { filter, opacity, mixBlendMode, backgroundColor } = getComputedStyle(image), problems = [];
      const photo = image.classList.contains("photo");
      if (filter !== (night && !photo ? turned : "none")) problems.push(`${image.src} has the filter ${filter}`);
      if (opacity !== "1") problems.push(`${image.src} has opacity ${opacity}`);
      if (mixBlendMode !== (photo ? "normal" : night ? "screen" : "multiply")) problems.push(`${image.src} is blended by ${mixBlendMode}`);
      if (night && photo && backgroundColor !== "rgb(255, 255, 255)") problems.push(`${image.src} stands on ${backgroundColor}`);
      return problems;
    });
  },

  // a formula that scrolls though the window is wide
  wide_formulas() {
    return [...document.querySelectorAll(".bd-article div.math")]
      .filter((box) => box.checkVisibility() && box.scrollWidth > box.clientWidth + 1)
      .map((box) => `${box.id || box.textContent.slice(0, 40)} is ${box.scrollWidth - box.clientWidth}px too wide`);
  },

  // whatever is wider than its place: it scrolls, shows that it does, and the keyboard reaches it
  clipped() {
    const problems = [];
    for (const box of document.querySelectorAll(".bd-article *")) {
      if (box.closest("mjx-container, svg") || !box.checkVisibility() || box.scrollWidth <= box.clientWidth + 1) continue;
      const formula = box.matches("span.math") && box.querySelector("mjx-container"); // with hidden MathML, which counts
      if (formula && formula.getBoundingClientRect().right < box.getBoundingClientRect().right + 1) continue;
      const style = getComputedStyle(box), name = `${box.tagName}.${box.className} (${box.textContent.trim().slice(0, 40)})`;
      if (style.overflowX === "visible" || style.display === "inline" || box.clientWidth < 3) continue;
      if (style.overflowX === "hidden" || style.overflowX === "clip") problems.push(`${name} cuts off ${box.scrollWidth - box.clientWidth}px`);
      else if (!box.dataset.more || style.maskImage === "none") problems.push(`${name} does not show that it scrolls`);
      else if (box.tabIndex !== 0) problems.push(`${name} scrolls and the keyboard does not reach it`);
    }
    return problems.slice(0, 8);
  },

  // what repeats takes axe minutes and tells it nothing new: formulas, rows of a table, coloured words of code
  shorten() {
    for (const formula of document.querySelectorAll("mjx-container")) formula.replaceWith("x");
    for (const row of document.querySelectorAll("tbody tr:nth-child(n + 12)")) row.remove();
    const seen = {};
    for (const word of document.querySelectorAll(":is(pre, code, .sig) span[class]")) {
      const place = `${word.className} in ${word.parentElement.className}`;
      seen[place] = (seen[place] ?? 0) + 1;
      if (seen[place] > 3) word.replaceWith(...word.childNodes);
    }
  },

  // contrast depends on tags and classes: a block all of whose elements stood twice in the same places, on this
  // page or on another, goes
  thin(seen) {
    const looks = (one) => ["class", "style"].map((name) => one.getAttribute(name));
    const name = (one) => one ? [one.tagName, ...looks(one)].join(".") : "";
    const place = (one) => [one, one.parentElement, one.parentElement?.parentElement].map(name).join();
    const written = (one) => one.textContent.trim() && !getComputedStyle(one).display.startsWith("inline");
    const blocks = [...document.body.querySelectorAll("*")].filter(written).reverse(); // what is inside first
    for (const block of blocks) block.dataset.block = "";
    for (const block of blocks) {
      if (block.querySelector("[data-block]")) continue;
      const places = [block, ...block.querySelectorAll("*")].map(place);
      if (places.every((one) => (seen[one] ?? 0) >= 2)) block.remove();
      else for (const one of places) seen[one] = (seen[one] ?? 0) + 1;
    }
    return seen;
  },
})
