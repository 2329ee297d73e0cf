// ---- tables

// `most` says how many rows to show.
function sortable(table, columns, rows, render, most = () => Infinity) {
  const sort = { column: -1, descending: false };
  const head = element("tr", {}, ...columns.map((column, i) => element("th", { scope: "col", class: column.number ? "num" : "" },
    element("button", { type: "button", onclick: () => { press(i); } }, column.title))));
  const body = element("tbody");
  table.replaceChildren(element("thead", {}, head), body);
  function press(i) {
    const first = columns[i].number && !columns[i].ascending;
    sort.descending = sort.column === i ? !sort.descending : Boolean(first);
    sort.column = i;
    show();
  }
  function show() {
    const listed = [...rows()];
    if (sort.column >= 0) {
      const value = columns[sort.column].value, sign = sort.descending ? -1 : 1;
      const missing = (v) => v === null || v === undefined || v === "";
      listed.sort((p, q) => {
        const [u, v] = [value(p), value(q)];
        if (missing(u) || missing(v)) return Number(missing(u)) - Number(missing(v));
        return sign * (typeof u === "number" && typeof v === "number" ? u - v : String(u).localeCompare(String(v), "en", { numeric: true }));
      });
    }
    [...head.children].forEach((th, i) => th.setAttribute("aria-sort", i !== sort.column ? "none" : sort.descending ? "descending" : "ascending"));
    body.replaceChildren(...listed.slice(0, most()).map(render));
  }
  show();
  return show;
}

// A table that is wider than its container shows every row as a block, so that nothing is cut off or scrolls sideways.
const tableWatcher = new ResizeObserver((entries) => entries.forEach(({ target }) => fitTable(target)));
function fitTable(place) {
  place.classList.remove("stacked");
  place.classList.toggle("stacked", place.scrollWidth > place.clientWidth + 1);
}

// A narrow column may break a name after these, and nowhere else.
const breakable = (name) => name.split(/(?<=[/+-])(?![/+-])/).flatMap((part) => [part, element("wbr")]);

// A number with its seeds beneath, and what the paper prints.
function numberCell(label, value, { low = null, high = null, printed = null, digits = 1, bold = false }) {
  const text = value.toFixed(digits);
  return element("td", { class: "num", "data-label": label }, bold ? element("b", {}, text) : text,
    low === null ? null : element("small", {}, `${low.toFixed(digits)}–${high.toFixed(digits)}`), printed === null ? null : element("small", {}, `paper ${printed.toFixed(digits)}`));
}

// Tables as `oddnode._utils.result_tables` encodes them, each collapsed at first.
function addTables(place, tables) {
  for (const { title, notes, grids } of tables) {
    place.append(element("details", { class: "panel" }, element("summary", {}, title),
      ...notes.map((note) => element("p", { class: "hint" }, note)), ...grids.flatMap(gridParts)));
  }
  document.querySelectorAll(".fit").forEach((place) => tableWatcher.observe(place));
}

function gridParts({ title, caption, columns, rows }) {
  const numeric = columns.map((_, i) => rows.some((row) => Array.isArray(row[i])));
  const table = element("table"), bare = (value) => (Array.isArray(value) ? value[0] : value);
  const cell = (value, i) => {
    if (!Array.isArray(value)) return element("td", { class: i === 0 ? "name" : "num", "data-label": columns[i] }, value ?? "–");
    const [ours, low, high, printed, digits] = value;
    return numberCell(columns[i], ours, { low, high, printed, digits });
  };
  sortable(table, columns.map((name, i) => ({ title: name, number: numeric[i], ascending: name.includes("↓"), value: (row) => bare(row[i]) })),
    () => rows, (row) => element("tr", {}, ...row.map(cell)));
  return [element("h3", {}, title), element("p", { class: "hint" }, caption), element("div", { class: "fit" }, table)];
}
