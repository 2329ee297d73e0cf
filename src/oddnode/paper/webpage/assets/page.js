"use strict";
(async () => {
const $ = (id) => document.getElementById(id);
if (typeof DecompressionStream === "undefined") { $("too-old").hidden = false; return; }
const data = JSON.parse(await unpacked("data"));
document.head.append(Object.assign(document.createElement("script"), { textContent: await unpacked("plotly") }));

async function unpacked(id) {
  const bytes = Uint8Array.from(atob($(id).textContent), (c) => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

const METRICS = { fpr95: "FPR95 ↓", auroc: "AUROC ↑", aupr: "AUPR ↑", id_acc: "ID acc ↑" };
const LOWER_IS_BETTER = new Set(["fpr95"]);
const ALL = "mean of all cells";

// ---- small tools

const decoded = new Map();
function array(number) {
  if (!decoded.has(number)) {
    const [kind, text] = data.arrays[number];
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    decoded.set(number, new { f4: Float32Array, i1: Int8Array, i2: Int16Array, i4: Int32Array }[kind](bytes.buffer));
  }
  return decoded.get(number);
}
const unique = (list) => [...new Set(list)];
const percent = (share) => `${(100 * share).toFixed(1)} %`;
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
const narrow = () => window.matchMedia("(max-width: 700px)").matches;
const mean = (list) => list.reduce((a, b) => a + b, 0) / list.length;

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") made.className = value;
    else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

function fill(select, values, wanted, names = (v) => v) {
  select.replaceChildren(...values.map((value) => element("option", { value }, names(value))));
  select.value = values.includes(wanted) ? wanted : values[0] ?? "";
  if (select.parentElement.tagName === "LABEL") select.parentElement.hidden = values.length < 2;
  return select.value;
}

function methodName(method) {
  const kind = data.methods[method] ?? {};
  return kind.model_free ? `${method} (model-free)` : kind.exposure ? `${method} *` : method;
}

// ---- counting: sorted scores, shares at or above a threshold

function countFrom(sorted, threshold) {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < threshold) low = middle + 1; else high = middle;
  }
  return sorted.length - low;
}
const shareFrom = (sorted, threshold) => countFrom(sorted, threshold) / sorted.length;

function thresholdFor(known, tpr) {
  const needed = Math.max(1, Math.ceil(Math.round(tpr * known.length * 1e9) / 1e9));
  return known[known.length - Math.min(needed, known.length)];
}

function rocCurve(known, unknown) {
  const cuts = unique([...known, ...unknown]).sort((p, q) => q - p);
  const step = Math.max(1, Math.floor(cuts.length / 400));
  const kept = cuts.filter((_, i) => i % step === 0 || i === cuts.length - 1);
  return {
    x: [0, ...kept.map((t) => 100 * shareFrom(unknown, t))],
    y: [0, ...kept.map((t) => 100 * shareFrom(known, t))],
    at: [cuts[0], ...kept],
  };
}

function areaUnder(known, unknown) {
  let sum = 0;
  for (const score of unknown) sum += countFrom(known, score) - (countFrom(known, score) - countAbove(known, score)) / 2;
  return sum / (known.length * unknown.length);
}
function countAbove(sorted, threshold) {
  let low = 0, high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= threshold) low = middle + 1; else high = middle;
  }
  return sorted.length - low;
}

// ---- plots

function draw(id, traces, layout, config = {}) {
  const axis = { gridcolor: colour("grid"), zerolinecolor: colour("grid"), linecolor: colour("line"), automargin: true, fixedrange: true };
  const base = {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: colour("fg"), family: "system-ui, sans-serif", size: 12.5 },
    margin: { l: 48, r: 14, t: 12, b: 44 }, dragmode: false, hovermode: "closest", showlegend: true,
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("muted"), activecolor: colour("fg") },
    hoverlabel: { bgcolor: colour("panel"), bordercolor: colour("muted"), font: { color: colour("fg") } },
  };
  const merged = { ...base, ...layout, xaxis: { ...axis, ...layout.xaxis }, yaxis: { ...axis, ...layout.yaxis } };
  return Plotly.react(id, traces, merged, { displayModeBar: false, responsive: true, ...config });
}

// ---- overview

const over = { protocol: "", cell: ALL, metric: "fpr95" };

function rowsOf(protocol, task) {
  return data.rows.filter((row) => row.protocol === protocol && (task === undefined || row.task === task));
}

function methodNumbers(method, metric) {
  const rows = rowsOf(over.protocol).filter((row) => row.method === method && row.numbers[metric]);
  const chosen = over.cell === ALL ? rows : rows.filter((row) => row.task === over.cell);
  const tasks = over.cell === ALL ? unique(rowsOf(over.protocol).map((row) => row.task)).length : 1;
  if (chosen.length < tasks || !chosen.length || chosen.some((row) => row.numbers[metric][0] === null)) return null;
  const printed = chosen.map((row) => row.numbers[metric][2]);
  return {
    method, ours: mean(chosen.map((row) => row.numbers[metric][0])), spread: mean(chosen.map((row) => row.numbers[metric][1])),
    printed: printed.includes(null) ? null : mean(printed),
  };
}

function drawOverview() {
  const { metric } = over;
  const worstFirst = LOWER_IS_BETTER.has(metric) ? (p, q) => q.ours - p.ours : (p, q) => p.ours - q.ours;
  const rows = unique(rowsOf(over.protocol).map((row) => row.method)).map((m) => methodNumbers(m, metric)).filter(Boolean).sort(worstFirst);
  const names = rows.map((row) => methodName(row.method));
  const good = LOWER_IS_BETTER.has(metric) ? "Further left is better." : "Further right is better.";
  const seeds = unique(rowsOf(over.protocol).map((row) => row.seeds));
  $("over-hint").textContent = `${METRICS[metric]} in percent, ${over.cell}, protocol ${over.protocol}, ${seeds.join(" or ")} seed${seeds[0] > 1 ? "s" : ""}; `
    + `the best at the top. ${good} Bars: one standard deviation over the seeds${over.cell === ALL ? ", averaged over the cells" : ""}. `
    + (rows.some((row) => row.printed !== null) ? "Diamonds: printed in the paper. " : "") + "* learns from exposed OOD nodes.";
  const kind = (row) => (data.methods[row.method].model_free ? "free" : /^nodesafe/.test(row.method) ? "nodesafe" : "other");
  const looks = { nodesafe: ["NODESAFE", "unknown", "square"], other: ["other methods", "known", "circle"], free: ["model-free scores", "muted", "x-thin-open"] };
  const traces = Object.entries(looks).map(([name, [label, tone, symbol]]) => {
    const part = rows.filter((row) => kind(row) === name);
    return {
      type: "scatter", mode: "markers", name: label, x: part.map((row) => row.ours), y: part.map((row) => methodName(row.method)),
      error_x: { type: "data", array: part.map((row) => row.spread), color: colour(tone), thickness: 1.5, width: 3 },
      marker: { color: colour(tone), size: 10, symbol, line: { width: symbol.endsWith("open") ? 2.5 : 0, color: colour(tone) } },
      customdata: part.map((row) => row.spread), hovertemplate: "%{y}: %{x:.1f} ± %{customdata:.1f}<extra></extra>",
    };
  }).filter((trace) => trace.x.length);
  const printed = rows.filter((row) => row.printed !== null);
  if (printed.length) {
    traces.push({
      type: "scatter", mode: "markers", name: "printed in the paper", x: printed.map((row) => row.printed), y: printed.map((row) => methodName(row.method)),
      marker: { symbol: "diamond-open", size: 11, color: colour("paper"), line: { width: 1.8 } }, hovertemplate: "%{y}, paper: %{x:.1f}<extra></extra>",
    });
  }
  $("overview").style.height = `${Math.max(220, 120 + 26 * names.length)}px`;
  draw("overview", traces, {
    xaxis: { title: { text: METRICS[metric] }, zeroline: false, range: spanOf(rows) },
    yaxis: { categoryorder: "array", categoryarray: names, type: "category", range: [-0.6, names.length - 0.4], ticks: "" },
    margin: { l: 10, r: 14, t: 12, b: 44 },
  });
}

function spanOf(rows) {
  const ends = rows.flatMap((row) => [row.ours - row.spread, row.ours + row.spread, row.printed ?? row.ours]);
  const [low, high] = [Math.min(...ends), Math.max(...ends)], pad = 0.04 * (high - low) + 1;
  return [Math.max(-2, low - pad), Math.min(102, high + pad)];
}

function drawAgainst() {
  const rows = rowsOf(over.protocol).filter((row) => row.numbers[over.metric]?.[2] != null && row.numbers[over.metric][0] !== null);
  $("against-panel").hidden = !rows.length;
  if (!rows.length) return;
  const side = LOWER_IS_BETTER.has(over.metric) ? "below" : "above";
  $("against-hint").textContent = `${METRICS[over.metric]}, protocol ${over.protocol}. A dot is a method on a cell: what the paper prints from left to right, `
    + `what was measured here from bottom to top. On the line both agree; ${side} it, ours is better than printed. Hover a dot for its name.`;
  const exposure = (row) => data.methods[row.method].exposure;
  const trace = (name, part, symbol, tone) => ({
    type: "scatter", mode: "markers", name, x: part.map((row) => row.numbers[over.metric][2]), y: part.map((row) => row.numbers[over.metric][0]),
    marker: { symbol, color: colour(tone), size: 8, opacity: 0.85 }, text: part.map((row) => `${row.method} on ${row.task}`),
    hovertemplate: "%{text}<br>printed %{x:.1f}, here %{y:.1f}<extra></extra>",
  });
  const core = (row) => /^nodesafe/.test(row.method);
  const traces = [
    { type: "scatter", mode: "lines", x: [0, 100], y: [0, 100], name: "equal", line: { color: colour("muted"), dash: "dot", width: 1.2 }, hoverinfo: "skip", showlegend: false },
    trace("without exposure", rows.filter((row) => !exposure(row) && !core(row)), "circle", "known"),
    trace("with exposure", rows.filter((row) => exposure(row) && !core(row)), "triangle-up", "b"),
    trace("NODESAFE, NODESAFE++", rows.filter(core), "square", "unknown"),
  ].filter((t) => t.x.length);
  draw("against", traces, {
    xaxis: { title: { text: `printed ${METRICS[over.metric]}` }, zeroline: false }, yaxis: { title: { text: "measured here" }, zeroline: false },
  });
}

function refreshOverview() { drawOverview(); drawAgainst(); }

function setUpOverview() {
  const protocols = unique(data.rows.map((row) => row.protocol));
  over.protocol = fill($("over-protocol"), protocols, "clean");
  const tasks = unique(data.rows.map((row) => row.task));
  over.cell = fill($("over-cell"), tasks.length > 1 ? [ALL, ...tasks] : tasks, ALL);
  fill($("over-metric"), Object.keys(METRICS), "fpr95", (m) => METRICS[m]);
  for (const name of ["protocol", "cell", "metric"]) {
    $(`over-${name}`).addEventListener("change", (event) => { over[name] = event.target.value; refreshOverview(); });
  }
  refreshOverview();
}

// ---- one cell

const state = { cell: null, test: "", a: "", b: "", threshold: 0, node: null };
const sortedScores = new Map();

function sortedOf(method, part) {
  const number = state.cell.methods[method][part].values;
  if (!sortedScores.has(number)) sortedScores.set(number, Float32Array.from(array(number)).sort());
  return sortedScores.get(number);
}
const known = (method) => sortedOf(method, "id");
const unknown = (method) => sortedOf(method, state.test);
const sameTpr = (method) => thresholdFor(known(method), Math.max(1e-9, shareFrom(known(state.a), state.threshold)));

function chooseCell(protocol, task, keep = {}) {
  state.cell = data.cells.find((cell) => cell.protocol === protocol && cell.task === task) ?? data.cells.find((cell) => cell.task === task) ?? data.cells[0];
  const { cell } = state;
  fill($("protocol"), unique(data.cells.map((c) => c.protocol)), cell.protocol);
  fill($("cell"), unique(data.cells.filter((c) => c.protocol === cell.protocol).map((c) => c.task)), cell.task);
  state.test = fill($("test"), cell.tests, keep.test);
  const methods = Object.keys(cell.methods);
  const other = (m) => (methods.includes(m) ? m : methods[0]);
  state.a = fill($("method-a"), methods, methods.includes(keep.a) ? keep.a : other("nodesafe"), methodName);
  state.b = fill($("method-b"), methods, methods.includes(keep.b) ? keep.b : other("gnnsafe"), methodName);
  state.node = null;
  resetThreshold();
}

function resetThreshold() {
  state.threshold = thresholdFor(known(state.a), 0.95);
  refreshCell();
}

function refreshCell() {
  noteCell();
  drawDistribution();
  drawRoc();
  drawRisk();
  drawGraphs();
  showThreshold();
}

function noteCell() {
  const { cell } = state;
  const count = (part) => {
    const { total } = cell.nodes[part], shown = array(cell.nodes[part].ids).length;
    return shown < total ? `a random ${shown.toLocaleString("en")} of ${total.toLocaleString("en")}` : total.toLocaleString("en");
  };
  $("cell-note").textContent = `Seed ${cell.seed}, protocol ${cell.protocol}: ${count("id")} known test nodes, ${count(state.test)} unknown ones. `
    + "The other seeds are in the means of the tables.";
  $("dist-title").textContent = `Scores of ${state.a} on ${cell.task}${cell.tests.length > 1 ? `, ${state.test}` : ""}`;
  $("b-name").textContent = state.a === state.b ? "the same method" : `FPR of ${state.b} at this TPR`;
}

let distributionRange = [0, 1];
function drawDistribution() {
  const [inside, outside] = [known(state.a), unknown(state.a)];
  const low = Math.min(inside[0], outside[0]), high = Math.max(inside[inside.length - 1], outside[outside.length - 1]);
  const pad = (high - low || 1) * 0.03;
  distributionRange = [low - pad, high + pad];
  const bins = 56, width = (high - low || 1) / bins;
  const histogram = (scores) => {
    const counts = new Array(bins).fill(0);
    for (const score of scores) counts[Math.min(bins - 1, Math.max(0, Math.floor((score - low) / width)))] += 1;
    return counts.map((c) => (100 * c) / scores.length);
  };
  const centres = Array.from({ length: bins }, (_, i) => low + (i + 0.5) * width);
  const bar = (name, scores, tone, shape) => ({
    type: "bar", name, x: centres, y: histogram(scores), width, opacity: 0.72,
    marker: { color: colour(tone), line: { width: 0 }, pattern: { shape, fillmode: "overlay", size: 6, solidity: 0.25, fgcolor: colour("panel") } },
    hovertemplate: `score %{x:.3g}: %{y:.1f} % of them<extra>${name}</extra>`,
  });
  draw("dist", [bar("known (ID)", inside, "known", ""), bar("unknown (OOD)", outside, "unknown", "/")], {
    barmode: "overlay", bargap: 0, xaxis: { title: { text: "score: higher = better known" }, range: distributionRange, zeroline: false },
    yaxis: { title: { text: "% of nodes" }, rangemode: "tozero" },
  }).then(placeHandle);
}

function placeHandle() {
  const layout = $("dist")._fullLayout;
  if (!layout) return;
  const { xaxis, yaxis } = layout, handle = $("threshold");
  const inside = Math.min(Math.max(state.threshold, distributionRange[0]), distributionRange[1]);
  handle.style.left = `${xaxis._offset + xaxis.d2p(inside)}px`;
  handle.style.top = `${yaxis._offset}px`;
  handle.style.height = `${yaxis._length}px`;
}

function setThreshold(value) {
  state.threshold = Math.min(Math.max(value, distributionRange[0]), distributionRange[1]);
  showThreshold();
}

let pending = false;
function showThreshold() {
  const { a, b, threshold } = state;
  const tpr = shareFrom(known(a), threshold), fpr = shareFrom(unknown(a), threshold);
  $("at").textContent = threshold.toPrecision(4);
  $("tpr").textContent = percent(tpr);
  $("fpr").textContent = percent(fpr);
  $("fpr-b").textContent = percent(shareFrom(unknown(b), sameTpr(b)));
  const handle = $("threshold");
  handle.setAttribute("aria-valuemin", distributionRange[0].toPrecision(6));
  handle.setAttribute("aria-valuemax", distributionRange[1].toPrecision(6));
  handle.setAttribute("aria-valuenow", String(threshold));
  handle.setAttribute("aria-valuetext", `${threshold.toPrecision(4)}: accepts ${percent(tpr)} of the known and ${percent(fpr)} of the unknown`);
  placeHandle();
  // Numbers follow at once; plots once per frame, however fast the pointer is.
  if (!pending) {
    pending = true;
    requestAnimationFrame(() => { pending = false; markCurves(); drawDegrees(); markMistakes(); showImages(); });
  }
}

const curves = { roc: 2, risk: 2 };  // the traces that mark the threshold come after the two curves
function drawRoc() {
  const line = (method, tone, dash) => {
    const curve = rocCurve(known(method), unknown(method));
    return {
      type: "scatter", mode: "lines", x: curve.x, y: curve.y, customdata: curve.at, line: { color: colour(tone), width: 2.6, dash },
      name: `${method}, AUROC ${(100 * areaUnder(known(method), unknown(method))).toFixed(1)}`, hovertemplate: "FPR %{x:.1f} %, TPR %{y:.1f} %<extra></extra>",
    };
  };
  draw("roc", [
    line(state.a, "a", "solid"), line(state.b, "b", "dash"), mark("a", "circle"), mark("b", "diamond"),
  ], {
    xaxis: { title: { text: "unknown let through (FPR), %" }, range: [-1, 101] }, yaxis: { title: { text: "known accepted (TPR), %" }, range: [0, 102] },
  });
}
const mark = (tone, symbol) => ({
  type: "scatter", mode: "markers", x: [], y: [], showlegend: false, hoverinfo: "skip",
  marker: { size: 13, symbol, color: colour(tone), line: { width: 2.5, color: colour("panel") } },
});

function riskCurve(method) {
  const scores = state.cell.methods[method], nodes = state.cell.nodes;
  const y = array(nodes.id.y), predicted = array(scores.id.predicted), inside = array(scores.id.values), outside = array(scores[state.test].values);
  const all = [];
  inside.forEach((score, i) => all.push([score, predicted[i] === y[i] ? 0 : 1]));
  outside.forEach((score) => all.push([score, 1]));
  all.sort((p, q) => q[0] - p[0]);
  const step = Math.max(1, Math.floor(all.length / 250)), x = [], risk = [], at = [];
  let wrong = 0;
  all.forEach(([score, error], i) => {
    wrong += error;
    const lastOfTie = i === all.length - 1 || all[i + 1][0] !== score;
    if (lastOfTie && (i % step === 0 || i === all.length - 1 || i < 20)) { x.push((100 * (i + 1)) / all.length); risk.push((100 * wrong) / (i + 1)); at.push(score); }
  });
  return { x, y: risk, at, all };
}
const riskAt = (curve, threshold) => {
  const accepted = curve.all.filter(([score]) => score >= threshold);
  return [100 * accepted.length / curve.all.length, accepted.length ? 100 * mean(accepted.map(([, error]) => error)) : 0];
};

let risks = {};
function drawRisk() {
  risks = { a: riskCurve(state.a), b: riskCurve(state.b) };
  const line = (curve, method, tone, dash) => ({
    type: "scatter", mode: "lines", x: curve.x, y: curve.y, name: method, line: { color: colour(tone), width: 2.6, dash },
    hovertemplate: "of the best %{x:.0f} %, %{y:.1f} % are wrong or unknown<extra></extra>",
  });
  draw("risk", [line(risks.a, state.a, "a", "solid"), line(risks.b, state.b, "b", "dash"), mark("a", "circle"), mark("b", "diamond")], {
    xaxis: { title: { text: "coverage: share accepted, %" }, range: [0, 101] }, yaxis: { title: { text: "risk, %" }, rangemode: "tozero" },
  });
}

function markCurves() {
  const [a, b] = [state.threshold, sameTpr(state.b)];
  const roc = [[state.a, a], [state.b, b]].map(([m, t]) => [100 * shareFrom(unknown(m), t), 100 * shareFrom(known(m), t)]);
  const risk = [riskAt(risks.a, a), riskAt(risks.b, b)];
  for (const [id, points] of [["roc", roc], ["risk", risk]]) {
    Plotly.restyle(id, { x: points.map((p) => [p[0]]), y: points.map((p) => [p[1]]) }, [curves[id], curves[id] + 1]);
  }
}

const DEGREES = [[0, 0], [1, 1], [2, 2], [3, 4], [5, 8], [9, 16], [17, 64], [65, Infinity]];
const degreeName = ([low, high]) => (low === high ? `${low}` : high === Infinity ? `${low}+` : `${low}–${high}`);
function drawDegrees() {
  const degree = array(state.cell.nodes[state.test].degree);
  const bins = DEGREES.filter(([low, high]) => degree.some((d) => d >= low && d <= high));
  const bar = (method, threshold, tone, shape) => {
    const scores = array(state.cell.methods[method][state.test].values);
    const parts = bins.map(([low, high]) => {
      let total = 0, passed = 0;
      degree.forEach((d, i) => { if (d >= low && d <= high) { total += 1; if (scores[i] >= threshold) passed += 1; } });
      return [passed, total];
    });
    return {
      type: "bar", name: method, x: bins.map(degreeName), y: parts.map(([p, t]) => (100 * p) / t), customdata: parts,
      marker: { color: colour(tone), pattern: { shape, fillmode: "overlay", size: 7, solidity: 0.25, fgcolor: colour("panel") } },
      hovertemplate: "degree %{x}: %{customdata[0]} of %{customdata[1]} nodes let through<extra>" + method + "</extra>",
    };
  };
  const traces = [bar(state.a, state.threshold, "a", "")];
  if (state.b !== state.a) traces.push(bar(state.b, sameTpr(state.b), "b", "/"));
  // Few steps, so that the axis seldom jumps while the threshold is dragged.
  const top = [5, 10, 25, 50].find((limit) => traces.every(({ y }) => y.every((value) => value <= limit))) ?? 100;
  draw("degree", traces, { barmode: "group", xaxis: { title: { text: "number of neighbours" }, type: "category" }, yaxis: { title: { text: "let through (FPR), %" }, range: [0, 1.02 * top] } });
}

function setUpHandle() {
  const handle = $("threshold");
  const move = (event) => {
    const { xaxis } = $("dist")._fullLayout;
    setThreshold(xaxis.p2d(event.clientX - $("dist").getBoundingClientRect().left - xaxis._offset));
  };
  handle.addEventListener("pointerdown", (event) => {
    handle.setPointerCapture(event.pointerId);
    handle.addEventListener("pointermove", move);
    event.preventDefault();
    handle.focus();
  });
  for (const end of ["pointerup", "pointercancel"]) handle.addEventListener(end, () => handle.removeEventListener("pointermove", move));
  handle.addEventListener("keydown", (event) => {
    const step = (distributionRange[1] - distributionRange[0]) / (event.shiftKey ? 20 : 200);
    const moves = { ArrowLeft: -step, ArrowDown: -step, ArrowRight: step, ArrowUp: step, PageDown: -10 * step, PageUp: 10 * step };
    if (event.key in moves) setThreshold(state.threshold + moves[event.key]);
    else if (event.key === "Home") setThreshold(distributionRange[0]);
    else if (event.key === "End") setThreshold(distributionRange[1]);
    else return;
    event.preventDefault();
  });
  $("reset").addEventListener("click", () => { setThreshold(thresholdFor(known(state.a), 0.95)); });
  $("roc").on("plotly_click", ({ points: [point] }) => {
    if (point.curveNumber === 0) setThreshold(point.customdata);
    else if (point.curveNumber === 1) setThreshold(thresholdFor(known(state.a), Math.max(1e-9, point.y / 100)));
  });
}

// ---- the graph

const KINDS = ["known", "unknown", "other"];
const graph = { near: [], order: [] }, listening = new Set();

function rankAmongKnown(method, scores) {
  const inside = known(method);
  return Array.from(scores, (score) => (100 * (inside.length - countAbove(inside, score))) / inside.length);
}

function drawGraphs() {
  const { picture } = state.cell;
  $("graph-body").hidden = !picture;
  if (!picture) { $("graph-note").textContent = "No drawing was made of this cell: its data was not at hand."; return; }
  const kind = array(picture.kind);
  $("graph-note").textContent = `A connected sample of ${kind.length} nodes of ${state.cell.task}`
    + (picture.graphs.length > 1 ? `, left the graph of the known nodes, right that of the unknown ones (${picture.graphs[1]})` : "")
    + ". Colour: where a node's score lies among those of the known test nodes, in percent; good: circles bright, diamonds dark."
    + " Circles are known, diamonds unknown, small grey dots other nodes (of the training set, for example). A ring: on the wrong side of the threshold above.";
  graph.near = Array.from(kind, () => []);
  const [from, to] = [array(picture.from), array(picture.to)];
  from.forEach((p, i) => { graph.near[p].push(to[i]); graph.near[to[i]].push(p); });
  const scores = array(picture.scores[state.a]);
  graph.order = Array.from(kind, (_, i) => i).filter((i) => kind[i] < 2).sort((p, q) => scores[p] - scores[q]);
  drawGraph("graph-a", state.a);
  drawGraph("graph-b", state.b);
  $("graph-a-title").textContent = state.a;
  $("graph-b-title").textContent = state.b;
  if (state.node !== null) showNode(state.node);
}

function drawGraph(id, method) {
  const { picture } = state.cell;
  const [x, y, kind, from, to, ids, shown] = ["x", "y", "kind", "from", "to", "ids", "shown"].map((name) => array(picture[name]));
  const scores = array(picture.scores[method]), rank = rankAmongKnown(method, scores);
  const lines = { x: [], y: [] };
  from.forEach((p, i) => { lines.x.push(x[p], x[to[i]], null); lines.y.push(y[p], y[to[i]], null); });
  const dots = (which, symbol, size) => {
    const chosen = Array.from(kind, (_, i) => i).filter((i) => kind[i] === which);
    return {
      type: "scatter", mode: "markers", name: KINDS[which], x: chosen.map((i) => x[i]), y: chosen.map((i) => y[i]), customdata: chosen,
      text: chosen.map((i) => `node ${ids[i]}, class ${className(shown[i])}<br>score ${scores[i].toPrecision(4)}`), hovertemplate: `%{text}<extra>${KINDS[which]}</extra>`,
      marker: which === 2 ? { symbol, size, color: colour("muted"), opacity: 0.55 } : {
        symbol, size, color: chosen.map((i) => rank[i]), colorscale: "Cividis", cmin: 0, cmax: 100, showscale: which === 0,
        line: { width: 0.9, color: colour("rim") },
        colorbar: { thickness: 10, len: 0.85, outlinewidth: 0, ticksuffix: " %", tickvals: [0, 50, 100], tickfont: { size: 11 } },
      },
    };
  };
  const ring = (width, size, tone) => ({
    type: "scatter", mode: "markers", x: [], y: [], hoverinfo: "skip", showlegend: false,
    marker: { symbol: "circle-open", size, color: colour(tone), line: { width } },
  });
  draw(id, [
    { type: "scatter", mode: "lines", ...lines, line: { color: colour("muted"), width: 0.7 }, opacity: 0.55, hoverinfo: "skip", showlegend: false },
    dots(2, "circle", 5), dots(0, "circle", narrow() ? 8 : 10), dots(1, "diamond", narrow() ? 9 : 11), ring(1.5, narrow() ? 11 : 14, "unknown"), ring(2.5, 19, "fg"),
  ], {
    xaxis: { visible: false, fixedrange: false, automargin: false }, yaxis: { visible: false, fixedrange: false, automargin: false, scaleanchor: picture.graphs.length > 1 ? undefined : "x" },
    margin: { l: 4, r: 4, t: 4, b: 4 }, legend: { orientation: "h", y: 1.01, yanchor: "bottom", x: 0 }, dragmode: narrow() ? false : "pan",
  }, { displayModeBar: !narrow(), displaylogo: false, scrollZoom: false, modeBarButtons: [["zoomIn2d", "zoomOut2d", "resetScale2d"]] });
  listenToNodes(id);
}
const MISTAKES = 4, CHOSEN = 5;

function markMistakes() {
  const { picture } = state.cell;
  if (!picture) return;
  const [x, y, kind] = ["x", "y", "kind"].map((name) => array(picture[name]));
  for (const [id, method, threshold] of [["graph-a", state.a, state.threshold], ["graph-b", state.b, sameTpr(state.b)]]) {
    const scores = array(picture.scores[method]);
    const wrong = graph.order.filter((i) => (scores[i] < threshold) !== (kind[i] === 1));
    Plotly.restyle(id, { x: [wrong.map((i) => x[i])], y: [wrong.map((i) => y[i])] }, [MISTAKES]);
  }
}

function className(value) { return value < 0 ? "none given" : String(value); }

function showNode(i) {
  const { picture } = state.cell;
  state.node = i;
  const [x, y, kind, ids, shown] = ["x", "y", "kind", "ids", "shown"].map((name) => array(picture[name]));
  const fact = (name, value) => element("div", {}, element("span", {}, name), element("b", {}, value));
  const score = (method) => array(picture.scores[method])[i];
  const said = (method) => `${score(method).toPrecision(4)} (above ${rankAmongKnown(method, [score(method)])[0].toFixed(0)} % of the known)`;
  $("node-title").textContent = `Node ${ids[i]}: ${["known", "unknown", "not tested"][kind[i]]}`;
  const image = pixelsOf(i);
  const neighbours = graph.near[i].map((j) => element("li", {}, element("button", {
    type: "button", class: KINDS[kind[j]], onclick: () => showNode(j),
  }, `${ids[j]} · class ${className(shown[j])} · ${array(picture.scores[state.a])[j].toPrecision(3)}`)));
  $("node-info").replaceChildren(
    element("div", { class: "facts" }, image === null ? null : digit(image),
      fact(`score, ${state.a}`, said(state.a)), state.b === state.a ? null : fact(`score, ${state.b}`, said(state.b)),
      fact("class", className(shown[i])), fact(`taken for by ${state.a}`, className(array(picture.predicted[state.a])[i])),
      fact("neighbours drawn", String(graph.near[i].length))),
    whyText(whyDrawn(i)),
    element("ul", { class: "near", "aria-label": "Neighbours: number, class, score" }, ...neighbours),
  );
  const around = [i, ...graph.near[i]];
  for (const id of ["graph-a", "graph-b"]) {
    Plotly.restyle(id, { x: [around.map((j) => x[j])], y: [around.map((j) => y[j])], "marker.size": [around.map((_, k) => (k ? 15 : 24))] }, [CHOSEN]);
  }
}

// The part of the cell that a drawn node belongs to, and its place there.
function placeOf(i) {
  const { picture, nodes } = state.cell;
  const kind = array(picture.kind)[i], part = kind === 0 ? "id" : kind === 1 ? state.cell.tests[0] : null;
  return part === null ? [null, -1] : [part, array(nodes[part].ids).indexOf(array(picture.ids)[i])];
}

function pixelsOf(i) {
  const { nodes } = state.cell, [part, place] = placeOf(i);
  return place < 0 || !nodes[part].pixels ? null : nodes[part].pixels.slice(64 * place, 64 * place + 64);
}

// Why a node is flagged, in words; only methods that compare kinds of evidence tell.
const why = (part, place) => state.cell.methods[state.a][part].why?.[place] ?? null;
const whyText = (text) => (text === null ? null : element("p", { class: "why" }, element("b", {}, `Why ${state.a} flags it: `), text));

function whyDrawn(i) {
  const [part, place] = placeOf(i);
  return place < 0 ? null : why(part, place);
}

// A plot takes listeners once it has been drawn, and the first cell may have no drawing.
function listenToNodes(id) {
  if (listening.has(id)) return;
  listening.add(id);
  for (const event of ["plotly_hover", "plotly_click"]) {
    $(id).on(event, ({ points: [point] }) => { if (point.customdata !== undefined && point.customdata !== state.node) showNode(point.customdata); });
  }
}

function setUpGraph() {
  const step = (by) => {
    const place = graph.order.indexOf(state.node);
    showNode(graph.order[place < 0 ? 0 : Math.min(graph.order.length - 1, Math.max(0, place + by))]);
  };
  $("node-next").addEventListener("click", () => step(-1));
  $("node-back").addEventListener("click", () => step(1));
}

// ---- images

function digit(text) {
  const canvas = element("canvas", { class: "digit", width: 8, height: 8 });
  const context = canvas.getContext("2d"), image = context.createImageData(8, 8);
  [...text].forEach((c, k) => { const grey = Math.min(255, parseInt(c, 17) * 16); image.data.set([grey, grey, grey, 255], 4 * k); });
  context.putImageData(image, 0, 0);
  return canvas;
}

// Evenly spread over a list, its ends included.
const spread = (list, count) => (list.length <= count ? list : Array.from({ length: count }, (_, i) => list[Math.round((i * (list.length - 1)) / (count - 1))]));

function showImages() {
  const { cell } = state, has = Boolean(cell.nodes.id.pixels);
  $("images").hidden = $("nav-images").hidden = !has;
  if (!has) return;
  const listed = (part, below) => {
    const scores = array(cell.methods[state.a][part].values);
    return Array.from(scores, (score, i) => [score, part, i]).filter(([score]) => (score < state.threshold) === below).sort((p, q) => p[0] - q[0]);
  };
  const caught = listed(state.test, true), alarms = listed("id", true), missed = listed(state.test, false).reverse();
  $("images-note").textContent = `${state.a} flags ${(caught.length + alarms.length).toLocaleString("en")} nodes at the threshold above. `
    + "Under each image: what it is, what the network took it for, and its score."
    + (cell.methods[state.a].id.why || cell.methods[state.a][state.test].why ? " Point at an image to read why it is flagged." : "");
  const wide = narrow() ? 1 : 2;
  $("gallery").replaceChildren(
    group(`Rightly flagged: ${caught.length} unknown nodes, from the oddest to the least odd`, spread(caught, 12 * wide)),
    group(`False alarms: ${alarms.length} known nodes, the oddest first`, alarms.slice(0, 12 * wide)),
    group(`Missed: ${missed.length} unknown nodes taken for known, the surest first`, missed.slice(0, 12 * wide)),
  );
  const [first] = [...caught, ...alarms].filter(([, part, i]) => why(part, i) !== null);
  if (first) showWhy(first[1], first[2]); else $("images-why").hidden = true;
}

function showWhy(part, i) {
  const text = why(part, i);
  $("images-why").hidden = text === null;
  $("images-why").replaceChildren(...(text === null ? [] : [element("b", {}, `Node ${array(state.cell.nodes[part].ids)[i]}: `), text]));
}

function group(title, list) {
  return element("div", { class: "panel" }, element("h3", {}, title), list.length
    ? element("div", { class: "gallery" }, ...list.map(([score, part, i]) => figure(score, part, i))) : element("p", { class: "hint" }, "None."));
}

function figure(score, part, i) {
  const nodes = state.cell.nodes[part], shown = array(nodes.shown)[i], taken = array(state.cell.methods[state.a][part].predicted)[i];
  const caption = element("figcaption", {}, element("b", {}, shown < 0 ? "mixed" : String(shown)), ` as ${taken}`, element("br"), score.toPrecision(3));
  const show = () => showWhy(part, i);
  const told = why(part, i) === null ? {} : { tabindex: 0, onmouseenter: show, onfocus: show, onclick: show };
  return element("figure", { class: part === "id" ? "known" : "unknown", title: `node ${array(nodes.ids)[i]}`, ...told }, digit(nodes.pixels.slice(64 * i, 64 * i + 64)), caption);
}

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

// A narrow column may break a name after these, and nowhere else.
const breakable = (name) => name.split(/(?<=[/+-])(?![/+-])/).flatMap((part) => [part, element("wbr")]);

function setUpResults() {
  const protocols = unique(data.rows.map((row) => row.protocol)), tasks = unique(data.rows.map((row) => row.task));
  fill($("table-protocol"), protocols, "clean");
  fill($("table-cell"), tasks.length > 1 ? ["all", ...tasks] : tasks, "all");
  const best = new Map();
  for (const row of data.rows.filter((r) => !data.methods[r.method].model_free)) {
    for (const [metric, [ours]] of Object.entries(row.numbers)) {
      const key = `${row.protocol} ${row.task} ${metric}`, old = best.get(key);
      if (ours !== null && (old === undefined || (LOWER_IS_BETTER.has(metric) ? ours < old : ours > old))) best.set(key, ours);
    }
  }
  const columns = [
    { title: "cell", value: (row) => row.task }, { title: "method", value: (row) => row.method },
    ...Object.entries(METRICS).map(([metric, title]) => ({ title, number: true, metric, ascending: LOWER_IS_BETTER.has(metric), value: (row) => row.numbers[metric]?.[0] ?? null })),
    { title: "seeds", number: true, value: (row) => row.seeds },
  ];
  const number = (row, metric) => {
    const [ours, spread, printed] = row.numbers[metric] ?? [null, null, null];
    if (ours === null) return element("td", { class: "num" }, "–");
    const isBest = best.get(`${row.protocol} ${row.task} ${metric}`) === ours;
    return element("td", { class: "num" }, isBest ? element("b", {}, ours.toFixed(1)) : ours.toFixed(1),
      row.seeds > 1 ? element("span", { class: "sd" }, ` ± ${spread.toFixed(1)}`) : null, printed === null ? null : element("small", {}, `paper ${printed.toFixed(1)}`));
  };
  const shown = () => data.rows.filter((row) => row.protocol === $("table-protocol").value
    && ($("table-cell").value === "all" || row.task === $("table-cell").value) && row.method.includes($("table-method").value.trim().toLowerCase()));
  const show = sortable($("results"), columns, shown, (row) => element("tr", { class: data.methods[row.method].model_free ? "model-free" : "" },
    element("td", {}, ...breakable(row.task)), element("td", {}, ...breakable(data.methods[row.method].exposure ? `${row.method} *` : row.method)),
    ...Object.keys(METRICS).map((metric) => number(row, metric)), element("td", { class: "num" }, String(row.seeds))));
  for (const id of ["table-protocol", "table-cell"]) $(id).addEventListener("change", show);
  $("table-method").addEventListener("input", show);
}

function setUpMoreTables() {
  for (const { title, notes, grids } of data.tables) {
    $("more-tables").append(element("details", { class: "panel" }, element("summary", {}, title),
      ...notes.map((note) => element("p", { class: "hint" }, note)), ...grids.flatMap(gridParts)));
  }
}

function gridParts({ title, caption, columns, rows }) {
  const numeric = columns.map((_, i) => rows.some((row) => Array.isArray(row[i])));
  const table = element("table"), bare = (value) => (Array.isArray(value) ? value[0] : value);
  const cell = (value, i) => {
    if (!Array.isArray(value)) return element("td", { class: numeric[i] ? "num" : "" }, value ?? "–");
    const [ours, spread, printed, digits] = value;
    return element("td", { class: "num" }, ours.toFixed(digits), spread === null ? null : element("span", { class: "sd" }, ` ± ${spread.toFixed(digits)}`),
      printed === null ? null : element("small", {}, `paper ${printed.toFixed(digits)}`));
  };
  sortable(table, columns.map((name, i) => ({ title: name, number: numeric[i], ascending: name.includes("↓"), value: (row) => bare(row[i]) })),
    () => rows, (row) => element("tr", {}, ...row.map(cell)));
  return [element("h3", {}, title), element("p", { class: "hint" }, caption),
    element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": title }, table)];
}

// ---- light and dark

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  $("theme").setAttribute("aria-pressed", String(theme === "dark"));
  $("theme").setAttribute("aria-label", theme === "dark" ? "Switch to light colours" : "Switch to dark colours");
  $("theme").lastElementChild.textContent = theme === "dark" ? " Light" : " Dark";
}
function redraw() { if (data.rows.length) refreshOverview(); if (state.cell) refreshCell(); }

function setUpTheme() {
  const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try { chosen = localStorage.getItem("oddnode-theme"); } catch { /* a page from disk may have no storage */ }
  setTheme(chosen ?? (prefersDark.matches ? "dark" : "light"));
  prefersDark.addEventListener("change", () => { if (chosen === null) { setTheme(prefersDark.matches ? "dark" : "light"); redraw(); } });
  $("theme").addEventListener("click", () => {
    chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("oddnode-theme", chosen); } catch { /* it holds for this visit then */ }
    setTheme(chosen);
    redraw();
  });
}

function setUpNavigation() {
  const links = new Map([...document.querySelectorAll(".bar nav a")].map((link) => [link.hash.slice(1), link]));
  const watcher = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) links.get(target.id)?.classList.toggle("here", isIntersecting);
  }, { rootMargin: "-30% 0px -65% 0px" });
  document.querySelectorAll("main section").forEach((section) => watcher.observe(section));
}

function setUpCell() {
  if (!data.cells.length) { $("one-cell").hidden = true; return; }
  const clean = data.cells.filter((cell) => cell.protocol === "clean");
  const first = clean.find((cell) => cell.task.endsWith("/label")) ?? clean[0] ?? data.cells[0];
  chooseCell(first.protocol, first.task);
  const keep = () => ({ a: state.a, b: state.b, test: state.test });
  $("protocol").addEventListener("change", () => chooseCell($("protocol").value, state.cell.task, keep()));
  $("cell").addEventListener("change", () => chooseCell(state.cell.protocol, $("cell").value, keep()));
  $("test").addEventListener("change", () => { state.test = $("test").value; resetThreshold(); });
  $("method-a").addEventListener("change", () => { state.a = $("method-a").value; resetThreshold(); });
  $("method-b").addEventListener("change", () => { state.b = $("method-b").value; refreshCell(); });
  setUpHandle();
  setUpGraph();
  new ResizeObserver(() => requestAnimationFrame(placeHandle)).observe($("dist"));
  $("dist").on("plotly_afterplot", placeHandle);
}

setUpTheme();
if (data.rows.length) { setUpOverview(); setUpResults(); } else { $("tables").hidden = true; }
setUpMoreTables();
setUpCell();
setUpNavigation();
document.documentElement.dataset.ready = "yes";
})();
