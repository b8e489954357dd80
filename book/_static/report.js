// Tables of class "sortable": a click on a header sorts by its column, a second one reverses. Empty cells stay last.
// A cell sorts by its key; without one by its text, in columns of numbers by the number that the text begins with.
// A link to something inside a folded table unfolds it.
document.addEventListener("DOMContentLoaded", () => {
  const collator = new Intl.Collator("en", { numeric: true });
  const key = (row, column) => {
    const { dataset, textContent } = row.cells[column];
    const header = row.closest("table").tHead.rows[0].cells[column];
    const number = header.classList.contains("is-number") ? parseFloat(textContent.replace("−", "-")) : NaN;
    return dataset.key ?? (isNaN(number) ? textContent : number);
  };
  const compare = (a, b) => (isNaN(a) || isNaN(b) ? collator.compare(a, b) : a - b);

  const sort = (table, column, falling) => {
    const rows = [...table.tBodies[0].rows];
    const [filled, empty] = [rows.filter((row) => key(row, column) !== ""), rows.filter((row) => key(row, column) === "")];
    filled.sort((a, b) => (falling ? -1 : 1) * compare(key(a, column), key(b, column)));
    table.tBodies[0].append(...filled, ...empty);
  };

  for (const table of document.querySelectorAll("table.sortable")) {
    const headers = [...table.tHead.rows[0].cells];
    headers.forEach((header, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...header.childNodes);
      header.append(button);
      button.addEventListener("click", () => {
        const falling = header.getAttribute("aria-sort") === "ascending";
        for (const other of headers) other.removeAttribute("aria-sort");
        header.setAttribute("aria-sort", falling ? "descending" : "ascending");
        sort(table, column, falling);
      });
    });
  }

  const unfold = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const folded = target?.closest("details.report");
    if (folded) {
      folded.open = true;
      target.scrollIntoView();
    }
  };
  window.addEventListener("hashchange", unfold);
  unfold();
});
