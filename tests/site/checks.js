// Read by test_pages.py: each function returns a list of complaints, empty when all is well.
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

  // WCAG 2 contrast of text with the nearest opaque background: 4.5, or 3 for large text
  contrast() {
    const canvas = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
    const brush = canvas.getContext("2d", { willReadFrequently: true }), known = new Map();
    const rgba = (colour) => {
      if (!known.has(colour)) {
        brush.clearRect(0, 0, 1, 1); brush.fillStyle = colour; brush.fillRect(0, 0, 1, 1);
        const [r, g, b, a] = brush.getImageData(0, 0, 1, 1).data;
        known.set(colour, [r, g, b, a / 255]);
      }
      return known.get(colour);
    };
    const over = (top, base) => [0, 1, 2].map((k) => top[k] * top[3] + base[k] * (1 - top[3])).concat(1);
    const background = (node) => {
      if (!node) return rgba(getComputedStyle(document.documentElement).colorScheme.includes("dark") ? "#121212" : "#fff");
      const colour = rgba(getComputedStyle(node).backgroundColor);
      return colour[3] === 1 ? colour : over(colour, background(node.parentElement));
    };
    const luminance = (colour) => colour.slice(0, 3).map((c) => c / 255)
      .map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4))
      .reduce((sum, c, k) => sum + c * [0.2126, 0.7152, 0.0722][k], 0);
    const problems = new Map();
    for (const node of document.querySelectorAll(".bd-article *, .bd-sidebar-primary a, .bd-sidebar-secondary a, .bd-footer *")) {
      const text = [...node.childNodes].filter((child) => child.nodeType === 3).map((child) => child.textContent.trim()).join("");
      if (!text || node.closest("svg, mjx-container, script, style") || !node.checkVisibility({ opacityProperty: true })) continue;
      const style = getComputedStyle(node), base = background(node), size = parseFloat(style.fontSize);
      const [low, high] = [luminance(over(rgba(style.color), base)), luminance(base)].sort((a, b) => a - b);
      const ratio = (high + 0.05) / (low + 0.05), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
      if (ratio < (large ? 3 : 4.5) - 0.005) {
        problems.set(`${node.tagName}.${node.className}`, `${ratio.toFixed(2)} in ${node.tagName}.${node.className}: ${text.slice(0, 30)}`);
      }
    }
    return [...problems.values()].slice(0, 8);
  },
})
