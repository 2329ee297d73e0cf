// ---- the rows, their findings and the graph around each

const nodes = data.nodes.map((node, i) => ({ ...node, i }));
const near = nodes.map(() => []);
{
  const [from, to] = [array(data.from), array(data.to)];
  from.forEach((p, k) => { near[p].push(to[k]); near[to[k]].push(p); });
}
const degree = array(data.degree), known = array(data.known), scores = array(data.scores);
const rates = array(data.rates), shares = array(data.shares);
const state = { threshold: data.threshold, row: 0, shown: 25 };
// A budget or a rate of false discoveries decides until the threshold is moved.
const isFirst = () => state.threshold === data.threshold;
const isFlagged = (node) => node.score !== null && (isFirst() ? node.flagged : node.score < state.threshold);
const numFlagged = () => (isFirst() ? data.numFlagged : Math.round((1 - shareFrom(scores, state.threshold)) * data.total));
// The probability that a known row scores below this.
const rateBelow = (score) => rates[known.length - countFrom(known, score)] ?? 1;
const count = (number, word) => `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;

// Sentences put names of columns in backticks.
const coded = (text) => text.split("`").map((part, i) => (i % 2 ? element("code", {}, part) : part));

// ---- the list

const STEP = 25;
const listed = () => nodes.slice(0, data.listed).filter(isFlagged);
const matching = () => {
  const text = $("search").value.trim().toLowerCase();
  return listed().filter((node) => ($("finding").value === "all" || String(node.finding) === $("finding").value)
    && ($("label").value === "all" || node.label === $("label").value)
    && (!text || node.id.toLowerCase().includes(text) || node.why.toLowerCase().includes(text)));
};
const COLUMNS = [
  { title: "row", value: (node) => node.id },
  { title: "predicted", value: (node) => node.label },
  { title: "score", number: true, ascending: true, value: (node) => node.score },
  { title: "finding", number: true, ascending: true, value: (node) => node.finding || null },
  { title: "why", value: (node) => node.why },
];
let showList = () => {};

function setUpList() {
  const numbers = unique(nodes.map((node) => node.finding)).filter(Boolean).sort((p, q) => p - q).map(String);
  fill($("finding"), ["all", ...numbers, ...(numbers.length ? ["0"] : [])], "all", (value) => ({ all: "all", 0: "none" })[value] ?? value);
  fill($("label"), ["all", ...unique(nodes.map((node) => node.label)).filter(Boolean).sort()], "all");
  const choose = (node) => element("button", { type: "button", class: "link", onclick: () => { chooseRow(node.i); $("row").scrollIntoView(); } }, node.id);
  showList = sortable($("table"), COLUMNS, () => matching(), (node) => element("tr", {},
    element("td", { class: "name" }, choose(node)), element("td", { "data-label": "predicted" }, node.label ?? "–"),
    element("td", { class: "num", "data-label": "score" }, node.score.toPrecision(4)),
    element("td", { class: "num", "data-label": "finding" }, node.finding ? String(node.finding) : "–"),
    element("td", { class: "why-cell", "data-label": "why" }, ...coded(node.why || "It was not flagged when it was scored, so no reason was written."))), () => state.shown);
  const refresh = () => { state.shown = STEP; refreshList(); };
  for (const id of ["finding", "label"]) $(id).addEventListener("change", refresh);
  $("search").addEventListener("input", refresh);
  $("more").addEventListener("click", () => { state.shown += 4 * STEP; refreshList(); });
  document.querySelectorAll(".show-finding").forEach((button) => button.addEventListener("click", () => {
    $("finding").value = button.dataset.finding;
    refresh();
    const first = matching()[0];
    if (first) chooseRow(first.i);
    $("list").scrollIntoView();
  }));
  document.querySelectorAll(".fit").forEach((place) => tableWatcher.observe(place));
}

function refreshList() {
  showList();
  const found = matching().length, all = numFlagged();
  $("more").parentElement.hidden = found <= state.shown;
  $("list-note").textContent = `${count(found, "row")}${found < all ? ` of ${all.toLocaleString("en")} flagged` : ""}, the oddest first.`
    + (all > data.listed ? ` Only the ${data.listed.toLocaleString("en")} oddest are on this page; the table of scores has all.` : "");
  fitTable($("table").parentElement);
}

// ---- the graph around a row: it in the middle, linked rows around it, their links among each other

const NS = "http://www.w3.org/2000/svg";
function svg(tag, attributes, ...children) {
  const made = document.createElementNS(NS, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value); else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}
const kindOf = (node) => (node.score === null ? "other" : isFlagged(node) ? "unknown" : "known");
const MOST_AROUND = 24;

function chooseRow(i) {
  state.row = i;
  showRow();
}

function showRow() {
  const node = nodes[state.row];
  if (!node) { $("row").hidden = true; return; }
  const around = [...near[node.i]].sort((p, q) => Number(isFlagged(nodes[q])) - Number(isFlagged(nodes[p])) || String(nodes[p].label).localeCompare(String(nodes[q].label)) || p - q);
  const drawn = around.slice(0, MOST_AROUND);
  $("row-title").textContent = `${node.id}: ${{ unknown: "flagged", known: "fits", other: "no score" }[kindOf(node)]}`;
  $("around").replaceChildren(drawAround(node, drawn));
  const counts = new Map();
  for (const j of around) counts.set(nodes[j].label ?? "no score", (counts.get(nodes[j].label ?? "no score") ?? 0) + 1);
  const labels = [...counts].sort((p, q) => q[1] - p[1]).map(([label, number]) => `${number} ${label}`).join(", ");
  const fact = (name, value) => element("div", {}, element("span", {}, name), element("b", {}, value));
  $("row-info").replaceChildren(
    element("div", { class: "facts" }, fact("predicted", node.label ?? "–"),
      fact(node.score === null ? "score" : `score, above ${(100 * rateBelow(node.score)).toFixed(0)} % of known rows`, node.score === null ? "none" : node.score.toPrecision(4)),
      node.finding ? fact("finding", String(node.finding)) : null, fact("new to the model", node.new ? "yes" : "no")),
    ...(node.why ? [element("p", { class: "why" }, element("b", {}, "Why it is flagged: "), ...coded(node.why))] : []),
    element("p", { class: "hint" }, `${count(degree[node.i], "link")}; ${drawn.length} drawn${labels ? `, predicted: ${labels}` : ""}.`),
    element("ul", { class: "near", "aria-label": "Linked rows" }, ...drawn.map((j) => element("li", {}, element("button", { type: "button", class: kindOf(nodes[j]), onclick: () => chooseRow(j) }, `${nodes[j].id} · ${nodes[j].label ?? "no score"}`)))),
  );
}

function drawAround(node, drawn) {
  const width = 520, height = 380, places = new Map([[node.i, [width / 2, height / 2]]]);
  drawn.forEach((j, k) => {
    const angle = (2 * Math.PI * k) / drawn.length - Math.PI / 2, far = drawn.length > 12 && k % 2 ? 0.72 : 1;
    places.set(j, [width / 2 + far * 0.4 * width * Math.cos(angle), height / 2 + far * 0.4 * height * Math.sin(angle)]);
  });
  const lines = [];
  for (const p of places.keys()) for (const q of near[p]) if (p < q && places.has(q)) lines.push([p, q]);
  const line = ([p, q]) => { const [[x1, y1], [x2, y2]] = [places.get(p), places.get(q)]; return svg("line", { x1, y1, x2, y2, class: p === node.i || q === node.i ? "own" : "" }); };
  const short = (text) => (text.length > 12 ? `${text.slice(0, 5)}…${text.slice(-6)}` : text);
  const dot = (j) => {
    const [x, y] = places.get(j), mine = j === node.i, kind = kindOf(nodes[j]), size = mine ? 12 : 8;
    const shape = kind === "unknown" ? svg("rect", { x: x - size * 0.85, y: y - size * 0.85, width: size * 1.7, height: size * 1.7, transform: `rotate(45 ${x} ${y})` }) : svg("circle", { cx: x, cy: y, r: kind === "other" ? size / 2 : size });
    const name = svg("text", { x, y: y + (mine ? 36 : y < height / 2 ? -14 : 26), "text-anchor": "middle" });
    name.textContent = short(nodes[j].id);
    const title = svg("title", {});
    title.textContent = `${nodes[j].id}, predicted ${nodes[j].label ?? "–"}`;
    return svg("g", { class: `${kind}${mine ? " mine" : ""}`, onclick: () => chooseRow(j) }, title, ...(mine ? [svg("circle", { cx: x, cy: y, r: 20, class: "ring" })] : []), shape, name);
  };
  return svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${node.id} and ${count(drawn.length, "linked row")}; the buttons beside it name them` }, ...lines.map(line), ...[...places.keys()].reverse().map(dot));
}

function setUpRow() {
  const step = (by) => {
    const order = listed().map((node) => node.i), place = order.indexOf(state.row);
    if (order.length) chooseRow(order[place < 0 ? 0 : Math.min(order.length - 1, Math.max(0, place + by))]);
  };
  $("next").addEventListener("click", () => step(-1));
  $("back").addEventListener("click", () => step(1));
}

// ---- the threshold

let range = [0, 1];
function drawScores() {
  // A few far scores would squeeze all others into one bar.
  const at = (sorted, share) => sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
  const low = Math.min(at(known, 0), at(scores, 0.002), state.threshold), high = Math.max(at(known, 1), at(scores, 0.998), state.threshold);
  const pad = 0.03 * (high - low || 1), bins = 48, width = (high - low || 1) / bins;
  range = [low - pad, high + pad];
  const bar = (name, values, share, tone, shape) => {
    const counts = new Array(bins).fill(0);
    values.forEach((score, i) => { counts[Math.min(bins - 1, Math.max(0, Math.floor((score - low) / width)))] += 100 * share(i); });
    return {
      type: "bar", name, x: counts.map((_, i) => low + (i + 0.5) * width), y: counts, width, opacity: 0.72,
      marker: { color: colour(tone), line: { width: 0 }, pattern: { shape, fillmode: "overlay", size: 6, solidity: 0.25, fgcolor: colour("panel") } },
      hovertemplate: `score %{x:.3g}: %{y:.1f} % of them<extra>${name}</extra>`,
    };
  };
  draw("dist", [bar("known rows", known, (i) => shares[i], "known", ""), bar(data.rows, scores, () => 1 / scores.length, "unknown", "/")], {
    barmode: "overlay", bargap: 0, xaxis: { title: { text: "score: higher = better known" }, range, zeroline: false }, yaxis: { title: { text: "% of rows" }, rangemode: "tozero" },
  }).then(() => placeSlider($("threshold"), $("dist"), range, state.threshold));
}

function setThreshold(value) {
  state.threshold = Math.min(Math.max(value, range[0]), range[1]);
  showThreshold();
}

function showThreshold() {
  const rate = isFirst() ? data.rate : rateBelow(state.threshold), flagged = numFlagged();
  $("at").textContent = state.threshold.toPrecision(4);
  $("num-flagged").textContent = `${flagged.toLocaleString("en")} of ${data.total.toLocaleString("en")}`;
  $("rate").textContent = percent(rate);
  const chance = rate * data.total;
  $("chance").textContent = chance.toFixed(chance < 10 ? 1 : 0);
  describeSlider($("threshold"), range, state.threshold, `${state.threshold.toPrecision(4)}: flags ${flagged} of ${data.total}, and ${percent(rate)} of known rows`);
  placeSlider($("threshold"), $("dist"), range, state.threshold);
  refreshList();
  showRow();
}

// ---- the picture at the top

function drawHero() {
  const canvas = $("hero"), { picture } = data, { width, height } = canvas.getBoundingClientRect(), scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const context = canvas.getContext("2d"), pad = 14;
  context.scale(scale, scale);
  const [x, y, kind, from, to] = ["x", "y", "kind", "from", "to"].map((name) => array(picture[name]));
  const place = (i) => [pad + ((width - 2 * pad) * x[i]) / 1000, pad + ((height - 2 * pad) * (1000 - y[i])) / 1000];
  context.strokeStyle = colour("edge");
  context.beginPath();
  from.forEach((p, k) => { context.moveTo(...place(p)); context.lineTo(...place(to[k])); });
  context.stroke();
  for (const [what, tone, size] of [[2, "muted", 2], [0, "known", 4], [1, "unknown", 4.6]]) {
    context.fillStyle = colour(tone);
    kind.forEach((each, i) => {
      if (each !== what) return;
      const [u, v] = place(i);
      context.beginPath();
      if (what === 1) { context.moveTo(u, v - size * 1.3); context.lineTo(u + size * 1.3, v); context.lineTo(u, v + size * 1.3); context.lineTo(u - size * 1.3, v); } else context.arc(u, v, size, 0, 2 * Math.PI);
      context.fill();
    });
  }
}

document.querySelectorAll(".lead, .cards p").forEach((place) => place.replaceChildren(...coded(place.textContent)));
setUpTheme(() => { drawHero(); drawScores(); });
setUpList();
setUpRow();
setUpSlider($("threshold"), $("dist"), () => range, () => state.threshold, setThreshold);
$("reset").addEventListener("click", () => { state.threshold = data.threshold; showThreshold(); });
new ResizeObserver(() => requestAnimationFrame(drawHero)).observe($("picture"));
new ResizeObserver(() => requestAnimationFrame(() => placeSlider($("threshold"), $("dist"), range, state.threshold))).observe($("dist"));
drawScores();
showThreshold();
document.documentElement.dataset.ready = "yes";
