// ---- one cell

const state = { cell: null, test: "", a: "", b: "", threshold: 0, node: null, image: null };
const sortedScores = new Map();

function sortedOf(method, part) {
  const number = state.cell.methods[method][part].values;
  if (!sortedScores.has(number)) sortedScores.set(number, Float32Array.from(array(number)).sort());
  return sortedScores.get(number);
}
const known = (method) => sortedOf(method, "id");
const unknown = (method) => sortedOf(method, state.test);
const sameTpr = (method) => { const tpr = shareFrom(known(state.a), state.threshold); return tpr > 0 ? thresholdFor(known(method), tpr) : Infinity; };

// Everything below the pickers is drawn from the state alone, so that nothing is left over from an earlier choice.
function chooseCell(cell, keep = {}) {
  state.cell = cell;
  fill($("protocol"), unique(data.cells.map((c) => c.protocol)), cell.protocol);
  fill($("cell"), unique(data.cells.filter((c) => c.protocol === cell.protocol).map((c) => c.task)), cell.task);
  state.test = fill($("test"), cell.tests, keep.test);
  const methods = Object.keys(cell.methods), wish = (names, among) => names.find((name) => among.includes(name)) ?? among[0] ?? state.a;
  state.a = fill($("method-a"), methods, wish([keep.a, data.opening.a, "nodesafe"], methods), starred);
  // Two different methods, unless the same one was chosen twice.
  const others = keep.a !== undefined && keep.a === keep.b ? methods : methods.filter((name) => name !== state.a);
  state.b = fill($("method-b"), methods, wish([keep.b, data.opening.b, "gnnsafe"], others), starred);
  state.node = state.image = null;
  resetThreshold();
}

function resetThreshold() {
  state.threshold = thresholdFor(known(state.a), 0.95);
  refreshCell();
}

function refreshCell() {
  if (data.rows.length) refreshOverview();
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
  $("cell-note").textContent = `${cell.about} Rules ${cell.protocol}, seed ${cell.seed}: ${count("id")} known test nodes, ${count(state.test)} unknown ones. `
    + "The tables have the means over all seeds.";
  $("dist-title").textContent = `Scores of ${state.a} on ${cell.task}${cell.tests.length > 1 ? `, ${state.test}` : ""}`;
  $("b-name").textContent = `let through by ${state.b} at the same TPR`;
  $("b-name").parentElement.hidden = state.a === state.b;
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

const placeHandle = () => placeSlider($("threshold"), $("dist"), distributionRange, state.threshold);

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
  describeSlider($("threshold"), distributionRange, threshold, `${threshold.toPrecision(4)}: accepts ${percent(tpr)} of the known and ${percent(fpr)} of the unknown`);
  placeHandle();
  // Numbers follow at once; plots once per frame, however fast the pointer is.
  if (!pending) {
    pending = true;
    requestAnimationFrame(() => { pending = false; markCurves(); drawDegrees(); paintGraphs(); showNode(); showImages(); });
  }
}

const curves = { roc: 2, risk: 2 };  // the traces that mark the threshold come after the two curves
function drawRoc() {
  const line = (method, tone, dash) => {
    const curve = rocCurve(known(method), unknown(method));
    return {
      type: "scatter", mode: "lines", cliponaxis: false, x: curve.x, y: curve.y, customdata: curve.at, line: { color: colour(tone), width: 2.6, dash }, visible: tone === "a" || state.a !== state.b,
      name: `${method}, AUROC ${(100 * areaUnder(known(method), unknown(method))).toFixed(1)}`, hovertemplate: "FPR %{x:.1f} %, TPR %{y:.1f} %<extra></extra>",
    };
  };
  draw("roc", [
    line(state.a, "a", "solid"), line(state.b, "b", "dash"), mark("a", "circle"), mark("b", "diamond"),
  ], {
    xaxis: { title: { text: "unknown let through (FPR), %" }, range: [0, 100] }, yaxis: { title: { text: "known accepted (TPR), %" }, range: [0, 100] },
  });
}
const mark = (tone, symbol) => ({
  type: "scatter", mode: "markers", x: [], y: [], showlegend: false, hoverinfo: "skip", cliponaxis: false, visible: tone === "a" || state.a !== state.b,
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
    type: "scatter", mode: "lines", cliponaxis: false, x: curve.x, y: curve.y, name: method, line: { color: colour(tone), width: 2.6, dash }, visible: tone === "a" || state.a !== state.b,
    hovertemplate: "of the best %{x:.0f} %, %{y:.1f} % are wrong or unknown<extra></extra>",
  });
  draw("risk", [line(risks.a, state.a, "a", "solid"), line(risks.b, state.b, "b", "dash"), mark("a", "circle"), mark("b", "diamond")], {
    xaxis: { title: { text: "accepted, % of the test nodes" }, range: [0, 100] }, yaxis: { title: { text: "wrong or unknown, %" }, rangemode: "tozero" },
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
      type: "bar", name: method, x: bins.map((bin, i) => `${degreeName(bin)}<br>${parts[i][1].toLocaleString("en")} node${parts[i][1] === 1 ? "" : "s"}`), y: parts.map(([p, t]) => (100 * p) / t), customdata: parts,
      marker: { color: colour(tone), pattern: { shape, fillmode: "overlay", size: 7, solidity: 0.25, fgcolor: colour("panel") } },
      text: parts.map(([p, t]) => (p ? `${((100 * p) / t).toFixed(1)} %` : "0")), textposition: "outside", cliponaxis: false,
      hovertemplate: "%{customdata[0]} of %{customdata[1]} nodes let through<extra>" + method + "</extra>",
    };
  };
  const traces = [bar(state.a, state.threshold, "a", "")];
  if (state.b !== state.a) traces.push(bar(state.b, sameTpr(state.b), "b", "/"));
  // Few steps, so that the axis seldom jumps while the threshold is dragged.
  const top = [5, 10, 25, 50].find((limit) => traces.every(({ y }) => y.every((value) => value <= limit))) ?? 100;
  draw("degree", traces, { barmode: "group", xaxis: { title: { text: "number of neighbours" }, type: "category" }, yaxis: { title: { text: "let through (FPR), %" }, range: [0, 1.1 * top], tickvals: [0, top / 2, top] } });
}

function setUpHandle() {
  setUpSlider($("threshold"), $("dist"), () => distributionRange, () => state.threshold, setThreshold);
  $("reset").addEventListener("click", () => { setThreshold(thresholdFor(known(state.a), 0.95)); });
  $("roc").on("plotly_click", ({ points: [point] }) => {
    if (point.curveNumber === 0) setThreshold(point.customdata);
    else if (point.curveNumber === 1) setThreshold(thresholdFor(known(state.a), Math.max(1e-9, point.y / 100)));
  });
}

