// A small table of one's own: dropped or chosen, checked here, scored by the service without a change of the graph.

import { post } from "./api.js";
import { TableError, edgesOf, isEdges, nodesOf, parse, template } from "./csv.js";
import { $, coded, count, element, mark, percent, short } from "./dom.js";

const MOST_BYTES = 4_000_000, MOST_ROWS = 1000;

export function setUpTable(tried) {
  const files = { nodes: null, edges: null };
  let model = null, turn = 0;

  const tell = (text, kind = "notice") => $("table-message").replaceChildren(...[text].flat().filter(Boolean).map((each) => element("p", { class: kind }, each)));
  async function read(file) {
    if (file.size > MOST_BYTES) throw new TableError(`${file.name} has ${Math.ceil(file.size / 1e6)} MB; this page takes ${MOST_BYTES / 1e6} MB. Post larger tables to the API (v1/batches).`);
    let text;
    try {
      text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    } catch {
      throw new TableError(`${file.name} is not text in UTF-8; save it as CSV (UTF-8).`);
    }
    return parse(text, file.name);
  }
  async function score() {
    const own = (turn += 1);
    $("table-place").replaceChildren();
    if (!model || (!files.nodes && !files.edges)) return;
    if (!files.nodes) { tell(`${files.edges.name} has edges. Add the file with the nodes.`); return; }
    try {
      const { nodes, notes } = nodesOf(files.nodes, model);
      if (nodes.length > MOST_ROWS) throw new TableError(`${files.nodes.name} has ${count(nodes.length, "row")}; this page scores ${MOST_ROWS.toLocaleString("en")}. Post larger tables to the API (v1/batches).`);
      const linked = files.edges ? edgesOf(files.edges, model, new Set(nodes.map((node) => node[model.columns ? model.id_column : "id"]))) : { edges: [], notes: [] };
      tell(`Scoring ${count(nodes.length, "row")} …`, "hint");
      await tried(async () => {
        const found = await post("v1/score", { nodes, edges: linked.edges, explain: true });
        if (own === turn) drawAnswers(found.answers, [...notes, ...linked.notes]);
      }, (text) => own === turn && tell(`The service could not score the table. ${text}`));
    } catch (error) {
      if (!(error instanceof TableError)) throw error;
      tell(error.message);
    }
  }
  function drawAnswers(answers, notes) {
    const flagged = answers.filter((answer) => answer.is_ood).length, lost = answers.reduce((sum, answer) => sum + (answer.unknown_neighbours?.length ?? 0), 0);
    const found = answers.every((answer) => answer.is_ood === null) ? "The model has no threshold for these rows, so that none is flagged."
      : flagged ? `${flagged.toLocaleString("en")} of ${count(answers.length, "row")} ${flagged === 1 ? "does" : "do"} not fit.` : answers.length === 1 ? "The row fits." : `All of ${count(answers.length, "row")} fit.`;
    tell([found, ...notes,
      lost ? `${count(lost, "edge")} to nodes that the graph does not have ${lost === 1 ? "was" : "were"} left out.` : ""]);
    const heads = ["row", "predicted", "p", "neighbours", "why"];
    $("table-place").replaceChildren(element("table", { class: "answers" },
      element("thead", {}, element("tr", {}, heads.map((head) => element("th", { scope: "col", class: ["p", "neighbours"].includes(head) ? "num" : null }, head)))),
      element("tbody", {}, [...answers].sort((p, q) => p.score - q.score).map((answer) => element("tr", {},
        element("td", { class: "name" }, mark(answer.is_ood), ` ${short(answer.id, 60)}`, element("span", { class: "unseen" }, answer.is_ood ? " flagged" : "")),
        element("td", { "data-label": "predicted" }, String(answer.predicted)),
        element("td", { class: "num", "data-label": "p" }, answer.p_value === null ? "–" : percent(answer.p_value)),
        element("td", { class: "num", "data-label": "neighbours" }, String(answer.num_neighbours)),
        element("td", { class: "why-cell", "data-label": "why" }, ...(answer.is_ood ? coded(answer.why ?? answer.reason ?? "") : [answer.is_ood === null ? "not judged" : "fits"])))))));
  }
  async function take(given, kind = null) {
    if (!model && !kind) { tell("The columns of the model are not known yet; drop the files again in a moment."); return; }
    try {
      for (const file of given) {
        const table = await read(file);
        // Dropped files say by their columns what they are.
        files[kind ?? (isEdges(table, model) ? "edges" : "nodes")] = table;
      }
    } catch (error) {
      if (!(error instanceof TableError)) throw error;
      $("table-place").replaceChildren();
      tell(error.message);
      return;
    }
    await score();
  }
  for (const kind of ["nodes", "edges"]) {
    // The same file may be chosen again after it was mended.
    $(`${kind}-file`).addEventListener("click", (event) => { event.target.value = ""; });
    $(`${kind}-file`).addEventListener("change", (event) => {
      files[kind] = null;
      tell([]);
      if (event.target.files.length) take([...event.target.files], kind); else score();
    });
  }
  const drop = $("drop");
  drop.addEventListener("dragover", (event) => { event.preventDefault(); drop.classList.add("over"); });
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    if (event.dataTransfer.files.length) take([...event.dataTransfer.files]);
  });
  // A file that misses the field would replace the page.
  for (const kind of ["dragover", "drop"]) addEventListener(kind, (event) => event.preventDefault());

  return {
    update(status) {
      if (JSON.stringify(status.model) === JSON.stringify(model)) return;
      model = status.model;
      if (files.nodes || files.edges) score(); // they were chosen before the columns were known
      const names = model.columns ? Object.keys(model.columns) : [];
      const save = element("button", { type: "button", class: "link", onclick: () => {
        const address = URL.createObjectURL(new Blob([`${template(model)}\n`], { type: "text/csv" }));
        element("a", { href: address, download: "nodes.csv" }).click();
        setTimeout(() => URL.revokeObjectURL(address), 1000);
      } }, "Save an empty table with these columns");
      $("columns-hint").replaceChildren(`Nodes: “${model.id_column}”${names.length ? `, ${names.slice(0, 4).map((name) => `“${short(name, 30)}”`).join(", ")}${names.length > 4 ? ` and ${names.length - 4} more` : ""}` : ` and ${count(model.features, "feature")}`}. `
        + `Edges: “${model.source_column ?? "source"}”, “${model.target_column ?? "target"}”${model.weight_column ? `, “${model.weight_column}”` : ""}. `, save);
    },
  };
}
