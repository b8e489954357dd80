// What is wider than its place scrolls in a box of its own. Such a box says on which side there is more, which the
// style shows as a fading edge, and the keyboard reaches it.
document.addEventListener("DOMContentLoaded", () => {
  const BOXES = "div.math, .formula, mjx-container[display=true], pre, dt.sig, .cell_output, .output, .pst-scrollable-table-container, .report-box, .frame";

  // On a phone a figure of several panels side by side keeps a width at which it can be read, and scrolls.
  for (const image of document.querySelectorAll(".bd-article :is(figure, .cell_output) img")) {
    const frame = document.createElement("div");
    const measure = () => frame.classList.toggle("is-wide", image.naturalWidth > 1.9 * image.naturalHeight);
    frame.className = "frame";
    image.replaceWith(frame);
    frame.append(image);
    image.addEventListener("load", measure);
    measure();
  }

  // In a sentence a long name breaks after its dots and underscores; in a table it gives its column its width.
  for (const code of document.querySelectorAll(".bd-article code:not(pre *, td *, :has(*))")) {
    code.innerHTML = code.innerHTML.replace(/[\w.]{18,}/g, (name) => name.replace(/[._]+(?=\w)/g, "$&<wbr>"));
  }

  // Paper cannot be unfolded: proofs are open while a page is printed.
  const folded = () => document.querySelectorAll(".bd-article details.sd-dropdown:not([open])");
  window.addEventListener("beforeprint", () => folded().forEach((proof) => { proof.open = proof.dataset.printed = true; }));
  window.addEventListener("afterprint", () => {
    for (const proof of document.querySelectorAll("details[data-printed]")) { proof.open = false; delete proof.dataset.printed; }
  });

  // The arrows that unfold a part of the contents are named by what they unfold.
  for (const arrow of document.querySelectorAll("nav details > summary")) {
    if (!arrow.textContent.trim()) arrow.ariaLabel = `Pages of ${arrow.closest("li").querySelector("a").textContent.trim()}`;
  }

  const mark = (box) => {
    const room = box.scrollWidth - box.clientWidth;
    const scrolls = room > 1 && ["auto", "scroll"].includes(getComputedStyle(box).overflowX);
    const sides = [box.scrollLeft > 1 && "left", box.scrollLeft < room - 1 && "right"].filter(Boolean);
    if (scrolls) {
      box.dataset.more = sides.join(" ");
      box.tabIndex = 0;
    } else if ("more" in box.dataset) {
      delete box.dataset.more;
    }
  };

  const watched = new WeakSet();
  const observer = new ResizeObserver((entries) => entries.forEach((entry) => mark(entry.target)));
  const watch = () => {
    for (const box of document.querySelectorAll(`.bd-article :is(${BOXES})`)) {
      if (watched.has(box)) mark(box);
      else {
        watched.add(box);
        observer.observe(box); // which marks it now, when it unfolds, and when the window changes
        box.addEventListener("scroll", () => mark(box), { passive: true });
      }
    }
  };
  watch();
  document.fonts.ready.then(watch);
  window.addEventListener("load", () => window.MathJax?.startup?.promise?.then(watch));
});
