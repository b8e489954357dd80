// Search results: the prose of a page makes its snippet. Code, buttons and the source of formulas do not.
(() => {
  const NOISE = "script, style, nav, button, h1, .headerlink, .eqno, .cell_input, .cell_output, details.hide > summary, .toctree-wrapper";

  const prose = (html, anchor) => {
    const page = new DOMParser().parseFromString(html, "text/html");
    const place = anchor ? page.getElementById(decodeURIComponent(anchor.slice(1))) : null;
    const section = place?.closest("section");
    const article = page.querySelector("article.bd-article") ?? page.querySelector("[role=main]");
    for (const node of page.querySelectorAll(NOISE)) node.remove();
    for (const node of page.querySelectorAll(".math")) node.replaceWith("…");
    for (const part of [section, place, article]) {
      const text = part?.textContent.replace(/\s+/g, " ").trim();
      if (text) return text;
    }
    return "";
  };

  const mend = () => { Search.htmlToText = prose; };
  if (typeof Search === "undefined") document.addEventListener("DOMContentLoaded", mend);
  else mend();
})();
