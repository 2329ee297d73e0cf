// The nodes around one: it in the middle, its neighbours on a ring, theirs on a second.

import { count, element, kindOf, short, svg } from "./dom.js";

const WIDTH = 480, HEIGHT = 400, MOST_NAMED = 12;

export function nodesOf(found) {
  const { nodes } = found;
  return nodes.ids.map((id, i) => ({
    id, hop: found.hops[i], isFlagged: nodes.is_ood[i], p: nodes.p_value[i], predicted: nodes.predicted[i], isNew: nodes.is_new[i],
  }));
}

export function drawAround(found, choose) {
  const nodes = nodesOf(found), index = new Map(nodes.map((node, i) => [node.id, i]));
  const links = found.edges.map(([a, b, weight]) => [index.get(a), index.get(b), weight]).filter(([a, b]) => a !== b);
  const places = placed(nodes, links);
  const heaviest = Math.max(...links.map(([, , weight]) => Math.abs(weight)), 1e-300);
  const lines = [...links].sort((p, q) => own(p) - own(q)).map(([a, b, weight]) => svg("line", {
    x1: places[a][0], y1: places[a][1], x2: places[b][0], y2: places[b][1],
    class: own([a, b]) ? "own" : null, "stroke-width": ((own([a, b]) ? 1 : 0.7) * (0.8 + 1.4 * Math.abs(weight) / heaviest)).toFixed(2),
  }));
  const first = nodes.filter((node) => node.hop === 1).length;
  const dots = nodes.map((node, i) => dot(node, places[i], first <= MOST_NAMED, choose));
  const flagged = nodes.slice(1).filter((node) => node.isFlagged).length;
  // No higher than what is drawn.
  const heights = places.map(([, y]) => y), top = Math.max(0, Math.min(...heights) - 36), bottom = Math.min(HEIGHT, Math.max(...heights) + 36);
  return svg("svg", {
    viewBox: `0 ${top} ${WIDTH} ${bottom - top}`, role: "img",
    "aria-label": `${nodes[0].id} in the middle, ${count(first, "neighbour")} and ${count(nodes.length - 1 - first, "node")} next to those; ${flagged} of them are flagged. The buttons below name the neighbours.`,
  }, lines, dots.reverse());
}
const own = ([a, b]) => Number(a === 0 || b === 0);

function placed(nodes, links) {
  const near = nodes.map(() => []);
  for (const [a, b] of links) { near[a].push(b); near[b].push(a); }
  const rings = [1, 2].map((hop) => nodes.map((node, i) => i).filter((i) => (hop === 1 ? nodes[i].hop === 1 : nodes[i].hop > 1)));
  const places = nodes.map(() => [WIDTH / 2, HEIGHT / 2]), angle = new Array(nodes.length).fill(0);
  // Neighbours of one class stand together.
  const group = (i) => `${nodes[i].isFlagged ? 1 : 0}${nodes[i].predicted}`;
  rings[0].sort((i, j) => group(i).localeCompare(group(j), "en", { numeric: true }));
  rings[0].forEach((i, k) => { angle[i] = (2 * Math.PI * k) / rings[0].length - Math.PI / 2; });
  // The others stand by those that they are linked to, evenly spaced.
  const wanted = new Map(rings[1].map((i) => {
    const inner = near[i].filter((j) => nodes[j].hop === 1);
    return [i, Math.atan2(sum(inner.map((j) => Math.sin(angle[j]))), sum(inner.map((j) => Math.cos(angle[j]))))];
  }));
  rings[1].sort((i, j) => wanted.get(i) - wanted.get(j));
  const step = (2 * Math.PI) / Math.max(rings[1].length, 1);
  const shift = Math.atan2(sum(rings[1].map((i, k) => Math.sin(wanted.get(i) - k * step))), sum(rings[1].map((i, k) => Math.cos(wanted.get(i) - k * step))));
  rings[1].forEach((i, k) => { angle[i] = shift + k * step; });
  const put = (i, far) => { places[i] = [WIDTH / 2 + far * 0.46 * WIDTH * Math.cos(angle[i]), HEIGHT / 2 + far * 0.44 * HEIGHT * Math.sin(angle[i])]; };
  const inner = rings[1].length ? 0.56 : 0.8;
  rings[0].forEach((i, k) => put(i, rings[0].length > 16 && k % 2 ? inner - 0.17 : inner));
  rings[1].forEach((i, k) => put(i, rings[1].length > 26 && k % 2 ? 0.86 : 1));
  return places.map((place) => place.map((value) => Math.round(10 * value) / 10));
}
const sum = (list) => list.reduce((a, b) => a + b, 0);

function dot(node, [x, y], isNamed, choose) {
  const size = [17, 11.5, 6.5][Math.min(node.hop, 2)], kind = kindOf(node.isFlagged), label = String(node.predicted), half = 0.88 * size;
  const shape = kind === "unknown"
    ? svg("rect", { x: x - half, y: y - half, width: 2 * half, height: 2 * half, rx: 2, transform: `rotate(45 ${x} ${y})` })
    : svg("circle", { cx: x, cy: y, r: kind === "other" ? 0.7 * size : size });
  return svg("g", { class: `${kind}${node.isNew ? " new" : ""}`, onclick: node.hop ? () => choose(node.id) : null, "data-hop": node.hop },
    svg("title", {}, `${node.id}: ${{ unknown: "flagged", known: "fits", other: "not judged" }[kind]}, predicted ${label}${node.isNew ? ", an arrival" : ""}`),
    node.hop === 0 ? svg("circle", { cx: x, cy: y, r: size + 9, class: "ring" }) : null, shape,
    node.hop < 2 && label.length <= 2 ? svg("text", { x, y: y + (node.hop ? 4 : 5.5), class: "class", "font-size": node.hop ? 12 : 16 }, label) : null,
    node.hop === 1 && isNamed ? svg("text", { x, y: y + (y < HEIGHT / 2 - 30 ? -size - 6 : size + 15), class: "name" }, short(node.id)) : null);
}

// Columns that are named by a row and a column (pixel_3_5) are values of a picture, and shown as one. Some may be
// missing: a model leaves out columns that are constant.
export function drawGrid(row) {
  const grids = new Map();
  for (const [column, value] of Object.entries(row)) {
    const [, name, r, c] = /^(.*?)_?(\d{1,2})_(\d{1,2})$/.exec(column) ?? [];
    if (name === undefined || typeof value !== "number") continue;
    if (!grids.has(name)) grids.set(name, []);
    grids.get(name).push([Number(r), Number(c), value]);
  }
  const [name, cells] = [...grids].sort((p, q) => q[1].length - p[1].length)[0] ?? ["", []];
  const [top, left, bottom, right] = [0, 1].map((k) => Math.min(...cells.map((cell) => cell[k]))).concat([0, 1].map((k) => Math.max(...cells.map((cell) => cell[k]))));
  const height = bottom - top + 1, width = right - left + 1;
  if (cells.length < 9 || height < 2 || width < 2 || cells.length < 0.6 * height * width) return null;
  const canvas = element("canvas", { class: "digit", width, height, role: "img", "aria-label": `The columns ${name} as a picture` });
  const pixels = new ImageData(width, height), values = cells.map((cell) => cell[2]);
  for (let i = 3; i < pixels.data.length; i += 4) pixels.data[i] = 255;
  const low = Math.min(...values), span = Math.max(...values) - low || 1;
  for (const [r, c, value] of cells) {
    const grey = (255 * (value - low)) / span, place = 4 * ((r - top) * width + c - left);
    pixels.data.set([grey, grey, grey, 255], place);
  }
  canvas.getContext("2d").putImageData(pixels, 0, 0);
  return canvas;
}
