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
  if (!picture) { $("graph-note").textContent = "No drawing was made of this task: its data was not at hand."; return; }
  const kind = array(picture.kind);
  $("graph-note").textContent = `A connected sample of ${kind.length} nodes of ${state.cell.task}`
    + (picture.graphs.length > 1 ? `, left the graph of the known nodes, right that of the unknown ones (${picture.graphs[1]})` : "")
    + ". Good: circles in the colour of known nodes, diamonds in that of unknown ones. Nodes that are not judged are those of training and validation, for example.";
  graph.near = Array.from(kind, () => []);
  const [from, to] = [array(picture.from), array(picture.to)];
  from.forEach((p, i) => { graph.near[p].push(to[i]); graph.near[to[i]].push(p); });
  const scores = array(picture.scores[state.a]);
  graph.order = Array.from(kind, (_, i) => i).filter((i) => kind[i] < 2).sort((p, q) => scores[p] - scores[q]);
  $("graph-b-panel").hidden = state.b === state.a;
  for (const [id, method] of shownGraphs()) {
    drawGraph(id, method);
    Plotly.Plots.resize(id);  // a single drawing takes the space of both
    $(`${id}-title`).textContent = method;
  }
}
const shownGraphs = () => [["graph-a", state.a], ["graph-b", state.b]].slice(0, state.a === state.b ? 1 : 2);

// The traces of a drawing, in their order.
const [JUDGED, MISTAKES, CHOSEN] = [[2, 3], 4, 5];

function drawGraph(id, method) {
  const { picture } = state.cell;
  const [x, y, kind, from, to, ids, shown] = ["x", "y", "kind", "from", "to", "ids", "shown"].map((name) => array(picture[name]));
  const scores = array(picture.scores[method]);
  const lines = { x: [], y: [] };
  from.forEach((p, i) => { lines.x.push(x[p], x[to[i]], null); lines.y.push(y[p], y[to[i]], null); });
  const dots = (which, symbol, size) => {
    const chosen = nodesOf(which);
    return {
      type: "scatter", mode: "markers", name: KINDS[which], x: chosen.map((i) => x[i]), y: chosen.map((i) => y[i]), customdata: chosen,
      text: chosen.map((i) => `node ${ids[i]}, class ${className(shown[i])}<br>score ${scores[i].toPrecision(4)}`), hovertemplate: `%{text}<extra>${KINDS[which]}</extra>`,
      marker: which === 2 ? { symbol, size, color: colour("muted"), opacity: 0.6 } : {
        symbol, size, color: chosen.map(() => 0), cmin: -1, cmax: 1, colorscale: [[0, colour("unknown")], [0.5, colour("middle")], [1, colour("known")]], showscale: false,
        line: { width: 1, color: colour("rim") },
      },
    };
  };
  const ring = (width, tone) => ({
    type: "scatter", mode: "markers", x: [], y: [], hoverinfo: "skip",
    marker: { symbol: "circle-open", size: narrow() ? 14 : 17, color: colour(tone), opacity: 1, line: { width } },
  });
  draw(id, [
    { type: "scatter", mode: "lines", ...lines, line: { color: colour("muted"), width: 0.7 }, opacity: 0.5, hoverinfo: "skip" },
    dots(2, "circle", 5), dots(0, "circle", narrow() ? 7 : 9), dots(1, "diamond", narrow() ? 8 : 10), ring(2, "fg"), ring(4, "chosen"),
  ], {
    xaxis: { visible: false, fixedrange: false, automargin: false }, yaxis: { visible: false, fixedrange: false, automargin: false },
    margin: { l: 4, r: 4, t: 4, b: 4 }, showlegend: false, dragmode: narrow() ? false : "pan",
  }, { displayModeBar: !narrow(), displaylogo: false, scrollZoom: false, modeBarButtons: [["zoomIn2d", "zoomOut2d", "resetScale2d"]] });
  listenToNodes(id);
}

const nodesOf = (which) => { const kind = array(state.cell.picture.kind); return Array.from(kind, (_, i) => i).filter((i) => kind[i] === which); };

// From -1 (below every known node) through 0 (at the threshold) to 1 (above every known node).
function oddness(method, scores, threshold) {
  const at = 100 * (1 - shareFrom(known(method), threshold));
  return rankAmongKnown(method, scores).map((rank, i) => (scores[i] < threshold ? (at > 0 ? Math.min(0, rank / at - 1) : -1) : (rank - at) / (100 - at || 1)));
}

// The colours, the rings of mistakes and those of the chosen node; one redrawing for all of them.
function paintGraphs() {
  const { picture } = state.cell;
  if (!picture) return;
  const [x, y, kind] = ["x", "y", "kind"].map((name) => array(picture[name]));
  const around = state.node === null ? [] : [state.node, ...graph.near[state.node]];
  for (const [id, method] of shownGraphs()) {
    const threshold = id === "graph-a" ? state.threshold : sameTpr(method), scores = array(picture.scores[method]);
    const odd = oddness(method, scores, threshold), traces = $(id).data;
    const put = (trace, nodes) => Object.assign(trace, { x: nodes.map((i) => x[i]), y: nodes.map((i) => y[i]) });
    for (const place of JUDGED) traces[place].marker.color = traces[place].customdata.map((i) => odd[i]);
    put(traces[MISTAKES], graph.order.filter((i) => (scores[i] < threshold) !== (kind[i] === 1)));
    put(traces[CHOSEN], around).marker.size = around.map((_, k) => (k ? 14 : 26));
    Plotly.redraw(id);
  }
}

function className(value) { return value < 0 ? "none given" : String(value); }

const fact = (name, value) => element("div", {}, element("span", {}, name), element("b", {}, value));

function chooseNode(i) {
  if (i === state.node) return;
  state.node = i;
  paintGraphs();
  showNode();
}

function showNode() {
  const { picture } = state.cell, i = state.node;
  if (!picture) return;
  if (i === null) {
    $("node-title").textContent = narrow() ? "Tap a node" : "Point at a node";
    $("node-info").replaceChildren(element("p", { class: "hint" }, `Its scores, class, neighbours and, where the method tells, why it is flagged. The buttons step through the nodes by the scores of ${state.a}.`));
    return;
  }
  const [kind, ids, shown] = ["kind", "ids", "shown"].map((name) => array(picture[name]));
  const score = (method) => array(picture.scores[method])[i];
  const verdict = (method, threshold) => fact(`${method}: above ${rankAmongKnown(method, [score(method)])[0].toFixed(0)} % of the known`,
    `${score(method).toPrecision(4)}, ${score(method) < threshold ? "flagged" : "accepted"}`);
  $("node-title").textContent = `Node ${ids[i]}: ${["known", "unknown", "not judged"][kind[i]]}`;
  const image = pixelsOf(i);
  const neighbours = graph.near[i].map((j) => element("li", {}, element("button", {
    type: "button", class: KINDS[kind[j]], onclick: () => chooseNode(j),
  }, `${ids[j]} · class ${className(shown[j])} · ${array(picture.scores[state.a])[j].toPrecision(3)}`)));
  $("node-info").replaceChildren(
    element("div", { class: "facts" }, image === null ? null : digit(image),
      verdict(state.a, state.threshold), state.b === state.a ? null : verdict(state.b, sameTpr(state.b)),
      fact("class", `${className(shown[i])}, taken for ${array(picture.predicted[state.a])[i]}`)),
    ...whyText(...placeOf(i)),
    element("ul", { class: "near", "aria-label": "Neighbours: number, class, score" }, element("li", { class: "hint" }, `${neighbours.length} neighbour${neighbours.length === 1 ? "" : "s"} drawn: node, class, score`), ...neighbours),
  );
}

// The part of the cell that a drawn node belongs to, and its index there.
function placeOf(i) {
  const { picture, nodes } = state.cell;
  const kind = array(picture.kind)[i], part = kind === 0 ? "id" : kind === 1 ? state.cell.tests[0] : null;
  return part === null ? [null, -1] : [part, array(nodes[part].ids).indexOf(array(picture.ids)[i])];
}

function pixelsOf(i) {
  const { nodes } = state.cell, [part, place] = placeOf(i);
  return place < 0 || !nodes[part].pixels ? null : nodes[part].pixels.slice(64 * place, 64 * place + 64);
}

// Why a node is flagged, in words; only methods that combine evidence say so, each for the nodes below its threshold.
const why = (part, place) => (place < 0 ? null : state.cell.methods[state.a][part].why?.[place] ?? null);
const whyText = (part, place) => {
  const text = why(part, place);
  return text === null ? [] : [element("p", { class: "why" }, element("b", {}, `Why ${state.a} finds it odd: `), text)];
};

// Put the panel of what was chosen below the drawing or the images that it was chosen in, and into sight.
function showBelow(panel, place) {
  place.after(panel);
  panel.scrollIntoView({ block: "nearest" });
}

// A plot takes listeners once it has been drawn, and the first cell may have no drawing.
function listenToNodes(id) {
  if (listening.has(id)) return;
  listening.add(id);
  for (const event of ["plotly_hover", "plotly_click"]) {
    $(id).on(event, ({ points: [point] }) => {
      if (point.customdata === undefined) return;
      chooseNode(point.customdata);
      if (event === "plotly_click" && narrow()) showBelow($("node"), $(id).closest(".panel"));
    });
  }
}

function setUpGraph() {
  const step = (by) => {
    const place = graph.order.indexOf(state.node);
    chooseNode(graph.order[place < 0 ? 0 : Math.min(graph.order.length - 1, Math.max(0, place + by))]);
  };
  $("node-next").addEventListener("click", () => step(-1));
  $("node-back").addEventListener("click", () => step(1));
}

