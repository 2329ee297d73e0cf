// ---- tables

function sortable(table, columns, rows, render) {
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
    body.replaceChildren(...listed.map(render));
  }
  show();
  return show;
}

// A table that is wider than its place shows every row as a block of its own, so that nothing is cut and nothing scrolls sideways.
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

// The best rounded number of every cell, protocol and metric: what looks equal is equally bold.
function bestNumbers() {
  const best = new Map();
  for (const row of data.rows.filter((r) => !data.methods[r.method].model_free)) {
    for (const [metric, { seeds }] of Object.entries(row.numbers)) {
      if (!complete(seeds)) continue;
      const key = `${row.protocol} ${row.task} ${metric}`, value = Number(mean(seeds).toFixed(1)), old = best.get(key) ?? value;
      best.set(key, LOWER_IS_BETTER.has(metric) ? Math.min(old, value) : Math.max(old, value));
    }
  }
  return (row, metric, value) => !data.methods[row.method].model_free && best.get(`${row.protocol} ${row.task} ${metric}`) === Number(value.toFixed(1));
}

function setUpResults() {
  const protocols = unique(data.rows.map((row) => row.protocol)), tasks = unique(data.rows.map((row) => row.task));
  fill($("table-protocol"), protocols, "clean");
  fill($("table-cell"), tasks.length > 1 ? ["all", ...tasks] : tasks, data.cells[data.opening?.cell]?.task);
  const isBest = bestNumbers();
  const columns = [
    { title: "cell", value: (row) => row.task }, { title: "method", value: (row) => row.method },
    ...Object.entries(METRICS).map(([metric, title]) => ({
      title, number: true, metric, ascending: LOWER_IS_BETTER.has(metric), value: (row) => (complete(row.numbers[metric]?.seeds ?? []) ? mean(row.numbers[metric].seeds) : null),
    })),
    ...(unique(data.rows.map((row) => row.seeds)).length > 1 ? [{ title: "seeds", number: true, value: (row) => row.seeds }] : []),
  ];
  const number = (row, { metric, title, value }) => {
    const ours = value(row);
    if (!metric) return element("td", { class: "num", "data-label": title }, String(ours));
    if (ours === null) return element("td", { class: "num", "data-label": title }, "–");
    const { seeds, printed } = row.numbers[metric];
    const ends = seeds.length > 1 ? { low: Math.min(...seeds), high: Math.max(...seeds) } : {};
    return numberCell(title, ours, { ...ends, printed, bold: isBest(row, metric, ours) });
  };
  const shown = () => data.rows.filter((row) => row.protocol === $("table-protocol").value
    && ($("table-cell").value === "all" || row.task === $("table-cell").value) && row.method.includes($("table-method").value.trim().toLowerCase()));
  const place = $("results").parentElement;
  const show = sortable($("results"), columns, shown, (row) => element("tr", { class: data.methods[row.method].model_free ? "model-free" : "" },
    element("td", { class: "name" }, ...breakable(row.task)), element("td", { class: "name" }, ...breakable(starred(row.method))),
    ...columns.filter((column) => column.number).map((column) => number(row, column))));
  const refresh = () => {
    place.classList.toggle("single", $("table-cell").value !== "all");  // the name of the one cell would stand in every row
    show();
    fitTable(place);
  };
  refresh();
  for (const id of ["table-protocol", "table-cell"]) $(id).addEventListener("change", refresh);
  $("table-method").addEventListener("input", refresh);
}

function setUpMoreTables() {
  for (const { title, notes, grids } of data.tables) {
    $("more-tables").append(element("details", { class: "panel" }, element("summary", {}, title),
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
