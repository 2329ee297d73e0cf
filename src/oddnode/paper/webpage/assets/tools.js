const $ = (id) => document.getElementById(id);
if (typeof DecompressionStream === "undefined") { $("too-old").hidden = false; return; }
const data = JSON.parse(await unpacked("data"));
document.head.append(Object.assign(document.createElement("script"), { textContent: await unpacked("plotly") }));

async function unpacked(id) {
  const bytes = Uint8Array.from(atob($(id).textContent), (c) => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

const METRICS = { fpr95: "FPR95 ↓", auroc: "AUROC ↑", aupr: "AUPR ↑", id_acc: "ID acc ↑" };
const MEANINGS = {
  fpr95: "the share of unknown nodes that is let through by the threshold that accepts 95 % of the known ones",
  auroc: "the chance that a random known node scores higher than a random unknown one; 50 is guessing",
  aupr: "average precision with the known nodes as the positive class",
  id_acc: "the share of known test nodes that get the right class",
};
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
const narrow = () => window.matchMedia("(max-width: 800px)").matches;
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

// A method's name with its mark: an asterisk if it learns from exposed nodes.
const starred = (method) => (data.methods[method].exposure ? `${method} *` : method);

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

