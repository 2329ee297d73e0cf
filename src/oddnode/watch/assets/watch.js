// ---- windows in time: how many rows are flagged, the evidence, and one window

const windows = data.windows, names = windows.map((each) => each.name);
const state = { at: Math.max(0, windows.findIndex((each) => each.raised) < 0 ? windows.length - 1 : windows.findIndex((each) => each.raised)) };
const coded = (text) => text.split("`").map((part, i) => (i % 2 ? element("code", {}, part) : part));
const shown = (value, isShare) => (isShare ? percent(value) : String(Number(value.toPrecision(3))));
const longest = Math.max(...names.map((name) => name.length));
const xaxis = () => ({ type: "category", nticks: Math.max(2, Math.floor($("share-plot").clientWidth / (10 * longest))), tickangle: 0 });

function band(low, high, name) {
  const line = { width: 0 };
  return [
    { x: names, y: low.map((v) => 100 * v), mode: "lines", line, hoverinfo: "skip", showlegend: false },
    { x: names, y: high.map((v) => 100 * v), mode: "lines", line, fill: "tonexty", fillcolor: `${colour("known")}33`, name, hoverinfo: "skip" },
  ];
}

function markers(tone) {
  return {
    color: colour(tone), size: windows.map((_, i) => (i === state.at ? 13 : 8)), symbol: windows.map((each) => (each.raised ? "star-diamond" : "diamond")),
    line: { width: windows.map((_, i) => (i === state.at ? 3 : 0)), color: colour("chosen") },
  };
}

function drawShares() {
  const shares = windows.map((each) => 100 * each.share);
  const up = windows.map((each) => 100 * (each.high - each.share)), down = windows.map((each) => 100 * (each.share - each.low));
  draw("share-plot", [
    ...band(windows.map((each) => each.rateLow), windows.map((each) => each.rateHigh), "known rows"),
    { x: names, y: windows.map((each) => 100 * each.rate), mode: "lines", line: { color: colour("known"), width: 2 }, showlegend: false, hoverinfo: "skip" },
    {
      x: names, y: shares, mode: "lines+markers", name: "new rows", line: { color: colour("unknown"), width: 1.5, dash: "dot" }, marker: markers("unknown"),
      error_y: { type: "data", symmetric: false, array: up, arrayminus: down, color: colour("muted"), thickness: 1.2, width: 3 },
      text: windows.map((each) => `${each.flagged.toLocaleString("en")} of ${each.rows.toLocaleString("en")}`), hovertemplate: "%{x}: %{y:.1f} % (%{text})<extra></extra>",
    },
  ], { xaxis: xaxis(), yaxis: { title: { text: "% flagged" }, range: [0, 105 * Math.max(...windows.map((each) => (each.rows < 20 ? each.share : each.high)))] } }).then(choosable);
}

function drawEvidence() {
  draw("evidence-plot", [
    { x: names, y: names.map(() => data.alarm), mode: "lines", name: "alarm", line: { color: colour("fg"), width: 1.5, dash: "dash" }, hoverinfo: "skip" },
    { x: names, y: windows.map((each) => each.evidence), mode: "lines+markers", name: "evidence", line: { color: colour("unknown"), width: 1.5 }, marker: markers("unknown"), hovertemplate: "%{x}: 10^%{y:.1f} to 1<extra></extra>" },
  ], { xaxis: xaxis(), yaxis: { title: { text: "log10 of the capital" }, zeroline: true } }).then(choosable);
}

function choosable(plot) {
  if (plot.dataset.choosable) return;
  plot.dataset.choosable = "yes";
  plot.on("plotly_click", (event) => choose(names.indexOf(event.points[0].x)));
}

function choose(at) {
  state.at = at;
  $("which").value = String(at);
  showWindow();
  drawAll();
}

const KINDS = { column: "column", label: "label", links: "links", evidence: "evidence" };
function showWindow() {
  const each = windows[state.at];
  if (!each) { for (const id of ["window", "shares", "evidence"]) $(id).hidden = true; return; }
  $("num-rows").textContent = each.rows.toLocaleString("en");
  $("flagged").textContent = `${percent(each.share)} (${percent(each.low)} to ${percent(each.high)})`;
  $("rate").textContent = percent(each.rate);
  $("capital").textContent = `10^${each.evidence.toFixed(1)} to 1${each.raised ? ", alarm" : ""}`;
  $("moved-note").textContent = each.changes.length ? "Compared with known rows; what chance might explain is left out. The largest difference is first." : "Nothing that chance might not explain.";
  sortable($("moved"), [{ title: "what", value: (c) => c[1] }, { title: "kind", value: (c) => c[0] }, { title: "known rows", number: true, value: (c) => c[2] }, { title: "this window", number: true, value: (c) => c[3] }],
    () => each.changes, (c) => element("tr", {}, element("td", { class: "name" }, c[1]), element("td", { "data-label": "kind" }, KINDS[c[0]]),
      element("td", { class: "num", "data-label": "known rows" }, shown(c[2], c[4])), element("td", { class: "num", "data-label": "this window" }, shown(c[3], c[4]))));
  $("moved").hidden = !each.changes.length;
  sortable($("oddest"), [{ title: "row", value: (o) => o[0] }, { title: "predicted", value: (o) => o[1] }, { title: "p-value", number: true, ascending: true, value: (o) => o[3] }, { title: "why", value: (o) => o[5] }],
    () => each.oddest, (o) => element("tr", {}, element("td", { class: "name" }, o[0]), element("td", { "data-label": "predicted" }, o[1]),
      element("td", { class: "num", "data-label": "p-value" }, String(Number(o[3].toPrecision(2)))), element("td", { class: "why-cell", "data-label": "why" }, ...coded(o[5] || (o[4] ? "Flagged; no reasons were kept." : "Not flagged.")))));
  document.querySelectorAll(".fit").forEach(fitTable);
}

function drawAll() {
  if (!windows.length) return;
  drawShares();
  drawEvidence();
}

fill($("which"), windows.map((_, i) => String(i)), String(state.at), (i) => names[Number(i)] + (windows[Number(i)].raised ? " (alarm)" : ""));
$("which").addEventListener("change", () => choose(Number($("which").value)));
setUpTheme(drawAll);
showWindow();
drawAll();
document.querySelectorAll(".fit").forEach((place) => tableWatcher.observe(place));
document.documentElement.dataset.ready = "yes";
