// Filters over the printed tables of the report: rows by paper, data set, method, scale and verdict. They stand in the
// page's address, so that a choice of rows can be linked to.
document.addEventListener("DOMContentLoaded", () => {
  const NAMES = { paper: "Paper", dataset: "Data set", method: "Method", scale: "Scale", verdict: "Verdict" };
  const tables = [...document.querySelectorAll("details.report[data-paper]")];
  if (!tables.length) return;

  const rows = tables.flatMap((table) => {
    const titles = [...table.querySelectorAll("thead th")].map((header) => header.textContent);
    const value = (row, name) => table.dataset[name] ?? row.cells[titles.indexOf(name)]?.textContent ?? "";
    return [...table.querySelectorAll("tbody tr")].map((row) => ({
      row, values: Object.fromEntries(Object.keys(NAMES).map((name) => [name, value(row, name) || "none"])),
    }));
  });

  const form = document.createElement("form");
  form.className = "report-filter";
  form.setAttribute("aria-label", "Filters of the rows");
  for (const [name, title] of Object.entries(NAMES)) {
    const label = document.createElement("label");
    const select = document.createElement("select");
    const values = [...new Set(rows.map(({ values }) => values[name]))].sort((a, b) => a.localeCompare(b));
    select.name = name;
    select.append(new Option("all", ""), ...values.map((value) => new Option(value, value)));
    label.append(title, select);
    form.append(label);
  }
  const reset = Object.assign(document.createElement("button"), { type: "reset", textContent: "Show all" });
  const count = document.createElement("output");
  count.setAttribute("aria-live", "polite");
  form.append(reset, count);
  tables[0].before(form);

  const FEW = 100; // rows that are unfolded at once
  const apply = () => {
    const wanted = [...new FormData(form)].filter(([, value]) => value);
    for (const { row, values } of rows) row.hidden = wanted.some(([name, value]) => values[name] !== value);
    const shown = rows.filter(({ row }) => !row.hidden).length;
    for (const table of tables) {
      table.hidden = !table.querySelector("tbody tr:not([hidden])");
      if (wanted.length || table.dataset.unfolded) table.open = wanted.length > 0 && shown <= FEW;
      if (wanted.length) table.dataset.unfolded = "yes"; else delete table.dataset.unfolded;
    }
    count.textContent = `${shown} of ${rows.length} rows`;
    const query = new URLSearchParams(wanted).toString();
    if (location.protocol !== "file:") history.replaceState(null, "", location.pathname + (query && `?${query}`) + location.hash);
  };
  form.addEventListener("change", apply);
  form.addEventListener("reset", () => setTimeout(apply));
  form.addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("hashchange", () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target?.closest("[hidden]")) return;
    form.reset();
    setTimeout(() => target.scrollIntoView());
  });
  for (const [name, value] of new URLSearchParams(location.search)) {
    const select = form.elements[name];
    if (select && [...select.options].some((option) => option.value === value)) select.value = value;
  }
  apply();
});
