const $ = (id) => document.getElementById(id);
if (typeof DecompressionStream === "undefined") { $("too-old").hidden = false; return; }
const data = JSON.parse(await unpacked("data"));
document.head.append(Object.assign(document.createElement("script"), { textContent: await unpacked("plotly") }));

async function unpacked(id) {
  const bytes = Uint8Array.from(atob($(id).textContent), (c) => c.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

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

// ---- a threshold that is dragged over a plot, or moved by keys

function placeSlider(handle, plot, range, value) {
  const layout = plot._fullLayout;
  if (!layout) return;
  const { xaxis, yaxis } = layout, inside = Math.min(Math.max(value, range[0]), range[1]);
  handle.style.left = `${xaxis._offset + xaxis.d2p(inside)}px`;
  handle.style.top = `${yaxis._offset}px`;
  handle.style.height = `${yaxis._length}px`;
}

function describeSlider(handle, range, value, text) {
  handle.setAttribute("aria-valuemin", range[0].toPrecision(6));
  handle.setAttribute("aria-valuemax", range[1].toPrecision(6));
  handle.setAttribute("aria-valuenow", String(value));
  handle.setAttribute("aria-valuetext", text);
}

function setUpSlider(handle, plot, range, value, set) {
  const move = (event) => {
    const { xaxis } = plot._fullLayout;
    set(xaxis.p2d(event.clientX - plot.getBoundingClientRect().left - xaxis._offset));
  };
  handle.addEventListener("pointerdown", (event) => {
    handle.setPointerCapture(event.pointerId);
    handle.addEventListener("pointermove", move);
    event.preventDefault();
    handle.focus();
  });
  for (const end of ["pointerup", "pointercancel"]) handle.addEventListener(end, () => handle.removeEventListener("pointermove", move));
  handle.addEventListener("keydown", (event) => {
    const [low, high] = range(), step = (high - low) / (event.shiftKey ? 20 : 200);
    const moves = { ArrowLeft: -step, ArrowDown: -step, ArrowRight: step, ArrowUp: step, PageDown: -10 * step, PageUp: 10 * step };
    if (event.key in moves) set(value() + moves[event.key]);
    else if (event.key === "Home") set(low);
    else if (event.key === "End") set(high);
    else return;
    event.preventDefault();
  });
}

// ---- light and dark

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  $("theme").setAttribute("aria-pressed", String(theme === "dark"));
  $("theme").setAttribute("aria-label", theme === "dark" ? "Switch to light colours" : "Switch to dark colours");
  $("theme").lastElementChild.textContent = theme === "dark" ? " Light" : " Dark";
}

// Call `redraw` when the colours have changed.
function setUpTheme(redraw) {
  const prefersDark = window.matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  try { chosen = localStorage.getItem("oddnode-theme"); } catch { /* a page from disk may have no storage */ }
  setTheme(chosen ?? (prefersDark.matches ? "dark" : "light"));
  prefersDark.addEventListener("change", () => { if (chosen === null) { setTheme(prefersDark.matches ? "dark" : "light"); redraw(); } });
  $("theme").addEventListener("click", () => {
    chosen = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
    try { localStorage.setItem("oddnode-theme", chosen); } catch { /* then it only applies to this visit */ }
    setTheme(chosen);
    redraw();
  });
}

