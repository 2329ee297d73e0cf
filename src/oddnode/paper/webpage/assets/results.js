// ---- the table of results

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
    { title: "task", value: (row) => row.task }, { title: "method", value: (row) => row.method },
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
    place.classList.toggle("single", $("table-cell").value !== "all");  // the name of the only cell would be in every row
    show();
    fitTable(place);
  };
  refresh();
  for (const id of ["table-protocol", "table-cell"]) $(id).addEventListener("change", refresh);
  $("table-method").addEventListener("input", refresh);
}

