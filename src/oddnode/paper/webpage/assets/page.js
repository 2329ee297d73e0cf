// ---- the picture at the top

// Nodes as dots; where they are images, as many images as fit without covering each other.
function drawHero() {
  const canvas = $("hero"), cell = data.cells[data.opening?.cell];
  if (!canvas) return;
  $("picture").hidden = !cell.picture;
  if (!cell.picture) return;
  const { width, height } = canvas.getBoundingClientRect(), scale = window.devicePixelRatio || 1;
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const context = canvas.getContext("2d");
  context.scale(scale, scale);
  const places = heroPlaces(cell.picture, width, height);
  context.strokeStyle = colour("edge");
  const [from, to] = [array(cell.picture.from), array(cell.picture.to)];
  context.beginPath();
  from.forEach((p, i) => { context.moveTo(...places[p]); context.lineTo(...places[to[i]]); });
  context.stroke();
  const nodes = heroNodes(cell), size = width < 480 ? 21 : 26;
  const images = apart(nodes, places, size * 1.2);
  for (const node of nodes.filter((n) => !images.includes(n))) heroDot(context, places[node.i], node);
  for (const node of images) heroImage(context, places[node.i], node, size);
  for (const node of nodes.filter((n) => n.wrong)) heroRing(context, places[node.i], images.includes(node) ? size * 0.86 : 7);
}

function heroPlaces(picture, width, height) {
  const [x, y] = [array(picture.x), array(picture.y)], pad = 20;
  const scaled = (values, length) => { const low = Math.min(...values), high = Math.max(...values); return Array.from(values, (v) => pad + ((length - 2 * pad) * (v - low)) / (high - low || 1)); };
  const [u, v] = [scaled(x, width), scaled(y, height)];
  return u.map((place, i) => [place, height - v[i]]);
}

// What each drawn node is, and whether the opening method judges it wrongly at its threshold.
function heroNodes(cell) {
  const { picture, methods, nodes, tests } = cell, scores = array(picture.scores[data.opening.a]);
  const threshold = thresholdFor(Float32Array.from(array(methods[data.opening.a].id.values)).sort(), 0.95);
  const [kind, ids] = [array(picture.kind), array(picture.ids)];
  return Array.from(kind, (what, i) => {
    const part = what === 0 ? "id" : what === 1 ? tests[0] : null, place = part === null ? -1 : array(nodes[part].ids).indexOf(ids[i]);
    return {
      i, kind: what, wrong: what < 2 && (scores[i] < threshold) !== (what === 1),
      pixels: place < 0 || !nodes[part].pixels ? null : nodes[part].pixels.slice(64 * place, 64 * place + 64),
    };
  });
}

// Wrongly judged nodes first, so that they are seen.
function apart(nodes, places, gap) {
  const chosen = [];
  for (const node of nodes.filter((n) => n.pixels !== null).sort((p, q) => q.wrong - p.wrong)) {
    const [x, y] = places[node.i];
    if (chosen.every(({ i }) => Math.abs(places[i][0] - x) > gap || Math.abs(places[i][1] - y) > gap)) chosen.push(node);
  }
  return chosen;
}

function outline(context, [x, y], half, round) {
  context.beginPath();
  if (round) context.arc(x, y, half, 0, 2 * Math.PI);
  else { context.moveTo(x, y - half * 1.2); context.lineTo(x + half * 1.2, y); context.lineTo(x, y + half * 1.2); context.lineTo(x - half * 1.2, y); context.closePath(); }
}

function heroDot(context, place, { kind }) {
  outline(context, place, kind === 2 ? 2 : 4, kind !== 1);
  context.fillStyle = colour(["known", "unknown", "muted"][kind]);
  context.fill();
}

function heroRing(context, place, radius) {
  outline(context, place, radius, true);
  context.strokeStyle = colour("fg");
  context.lineWidth = 2;
  context.stroke();
}

function heroImage(context, [x, y], { kind, pixels: text }, size) {
  const half = size / 2;
  context.fillStyle = colour(kind === 0 ? "known" : "unknown");
  context.beginPath();
  context.roundRect(x - half - 3, y - half - 3, size + 6, size + 6, kind === 0 ? 9 : 0);
  context.fill();
  context.imageSmoothingQuality = "high";
  context.drawImage(digit(text), x - half, y - half, size, size);
}

function setUpHero() {
  if (!$("hero")) return;
  new ResizeObserver(() => requestAnimationFrame(drawHero)).observe($("picture"));
  if (data.opening.example !== null) $("example-image").append(digit(data.opening.example));
}

function redraw() {
  drawHero();
  if (state.cell) refreshCell(); else if (data.rows.length) refreshOverview();
}

function setUpCell() {
  if (!data.opening) {
    $("one-cell").hidden = true;
    document.querySelectorAll(".needs-cell").forEach((link) => { link.hidden = true; });
    return;
  }
  chooseCell(data.cells[data.opening.cell]);
  const keep = () => ({ a: state.a, b: state.b, test: state.test });
  const find = (protocol, task) => data.cells.find((cell) => cell.protocol === protocol && cell.task === task) ?? data.cells.find((cell) => cell.protocol === protocol);
  $("protocol").addEventListener("change", () => chooseCell(find($("protocol").value, state.cell.task), keep()));
  $("cell").addEventListener("change", () => chooseCell(find(state.cell.protocol, $("cell").value), keep()));
  $("test").addEventListener("change", () => { state.test = $("test").value; state.image = null; resetThreshold(); });
  $("method-a").addEventListener("change", () => { state.a = $("method-a").value; state.image = null; resetThreshold(); });
  $("method-b").addEventListener("change", () => { state.b = $("method-b").value; refreshCell(); });
  setUpHandle();
  setUpGraph();
  new ResizeObserver(() => requestAnimationFrame(placeHandle)).observe($("dist"));
  $("dist").on("plotly_afterplot", placeHandle);
}

setUpTheme(redraw);
if (data.rows.length) { setUpOverview(); setUpResults(); } else { $("methods").hidden = $("results-panel").hidden = true; }
addTables($("more-tables"), data.tables);
setUpHero();
setUpCell();
if (!state.cell && data.rows.length) refreshOverview();
document.documentElement.dataset.ready = "yes";
