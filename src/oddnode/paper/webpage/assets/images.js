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
  const number = (list) => list.length.toLocaleString("en");
  $("images-note").textContent = `${state.a} flags ${(caught.length + alarms.length).toLocaleString("en")} nodes at the threshold above. `
    + "Under each image: what it is, what the network took it for, and its score. Point at an image, or tap it, to read more.";
  const count = narrow() ? 12 : 24;
  $("gallery").after($("image-panel"));
  $("gallery").replaceChildren(
    group(`Rightly flagged: ${number(caught)} unknown nodes`, spread(caught, count), caught.length, "evenly spaced, from the oddest to the least odd"),
    group(`False alarms: ${number(alarms)} known nodes`, alarms.slice(0, count), alarms.length, "the oddest first"),
    group(`Missed: ${number(missed)} unknown nodes taken for known`, missed.slice(0, count), missed.length, "the surest first"),
  );
  const first = [...caught, ...alarms, ...missed][0] ?? [0, "id", 0];
  state.image ??= [first[1], first[2]];
  showImage();
}

function group(title, list, total, order) {
  return element("div", { class: "panel" }, element("h3", {}, title), list.length
    ? element("p", { class: "hint" }, `${list.length < total ? `${list.length} of them` : "All of them"}, ${order}.`) : element("p", { class: "hint" }, "None."),
  element("div", { class: "gallery" }, ...list.map(([score, part, i]) => imageButton(score, part, i))));
}

const shownClass = (part, i) => { const label = array(state.cell.nodes[part].shown)[i]; return label < 0 ? "mix" : String(label); };
const takenFor = (part, i) => String(array(state.cell.methods[state.a][part].predicted)[i]);
const pixels = (part, i) => state.cell.nodes[part].pixels.slice(64 * i, 64 * i + 64);

function imageButton(score, part, i) {
  const choose = () => { state.image = [part, i]; showImage(); };
  const press = (event) => { choose(); if (narrow()) showBelow($("image-panel"), event.currentTarget.closest(".panel")); };
  return element("button", {
    type: "button", class: part === "id" ? "known" : "unknown", "data-image": `${part} ${i}`, onmouseenter: () => { if (!narrow()) choose(); }, onfocus: choose, onclick: press,
    "aria-label": `node ${array(state.cell.nodes[part].ids)[i]}, ${shownClass(part, i)} taken for ${takenFor(part, i)}`,
  }, digit(pixels(part, i)), element("b", {}, shownClass(part, i)), ` as ${takenFor(part, i)}`, element("br"), score.toPrecision(3));
}

function showImage() {
  const [part, i] = state.image, nodes = state.cell.nodes[part];
  const at = (method, threshold) => {
    const score = array(state.cell.methods[method][part].values)[i];
    return `${score.toPrecision(4)}, ${score < threshold ? "flagged" : "accepted"}`;
  };
  for (const button of document.querySelectorAll("[data-image]")) button.classList.toggle("chosen", button.dataset.image === `${part} ${i}`);
  $("image-title").textContent = `Node ${array(nodes.ids)[i]}: ${part === "id" ? "known" : "unknown"}`;
  $("image-info").replaceChildren(
    element("div", { class: "facts" }, digit(pixels(part, i)), fact(state.a, at(state.a, state.threshold)),
      state.b === state.a ? null : fact(state.b, at(state.b, sameTpr(state.b))), fact("class", `${shownClass(part, i)}, taken for ${takenFor(part, i)}`)),
    ...whyText(part, i),
  );
}
