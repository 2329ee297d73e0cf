// Tables that a user drops on the page: CSV as RFC 4180 has it, checked against the columns of the model.

import { count } from "./dom.js";

export class TableError extends Error {}

export function parse(text, name) {
  const clean = text.replace(/^\uFEFF/, "");
  const head = clean.slice(0, clean.search(/[\r\n]|$/));
  // The separator that the header has most of; spreadsheets of many countries write semicolons.
  const separator = [",", ";", "\t"].map((each) => [head.split(each).length, each]).sort((p, q) => q[0] - p[0])[0][1];
  const rows = [];
  let row = [], cell = "", quoted = false, wasQuoted = false;
  const endCell = () => { row.push(cell); cell = ""; wasQuoted = false; };
  const endRow = () => { endCell(); if (row.length > 1 || row[0] !== "") rows.push(row); row = []; };
  for (let i = 0; i < clean.length; i += 1) {
    const c = clean[i];
    if (quoted) {
      if (c !== '"') cell += c;
      else if (clean[i + 1] === '"') { cell += '"'; i += 1; } else quoted = false;
    } else if (c === '"' && cell === "" && !wasQuoted) quoted = wasQuoted = true;
    else if (c === separator) endCell();
    else if (c === "\n") endRow();
    else if (c !== "\r") cell += c;
  }
  if (quoted) throw new TableError(`${name}: a quoted value does not end; every " inside a value is written "".`);
  endRow();
  const [columns, ...body] = rows;
  if (!columns) throw new TableError(`${name} is empty; its first line should name the columns.`);
  const twice = columns.find((column, i) => columns.indexOf(column) !== i);
  if (twice !== undefined) throw new TableError(`${name} has two columns “${twice}”; give each a name of its own.`);
  const bad = body.findIndex((each) => each.length !== columns.length);
  if (bad >= 0) throw new TableError(`${name}: row ${bad + 1} has ${count(body[bad].length, "value")}, but there are ${count(columns.length, "column")}.`);
  return { name, columns, rows: body };
}

const listed = (names) => `${names.slice(0, 5).map((name) => `“${name}”`).join(", ")}${names.length > 5 ? `, and ${names.length - 5} more` : ""}`;
const idOf = (model) => (text, what) => {
  if (model.id_type !== "int") return text;
  if (!/^-?\d{1,15}$/.test(text)) throw new TableError(`${what} is “${text}”, but ids of this graph are integers.`);
  return Number(text);
};

export const isEdges = (table, model) => !table.columns.includes(model.id_column);

// The rows as the API takes them, and notes on what is ignored.
export function nodesOf(table, model) {
  const id = model.id_column, known = model.columns ? Object.keys(model.columns) : null;
  if (!table.columns.includes(id)) throw new TableError(`${table.name} has no column “${id}” with the ids; its columns are ${listed(table.columns)}.`);
  if (!table.rows.length) throw new TableError(`${table.name} has no rows below its header.`);
  const own = table.columns.filter((column) => column !== id);
  const missing = (known ?? []).filter((column) => !own.includes(column));
  if (missing.length) {
    const near = own.filter((column) => missing.some((other) => other.toLowerCase() === column.trim().toLowerCase()));
    throw new TableError(`${table.name} lacks ${missing.length} of the ${count(known.length, "column")} that the model reads: ${listed(missing)}.`
      + (near.length ? ` It has ${listed(near)}, which differs in case or spaces.` : ""));
  }
  if (!known && own.length !== model.features) throw new TableError(`${table.name} has ${count(own.length, "column")} beside “${id}”, but a node has ${count(model.features, "feature")}.`);
  const extra = known ? own.filter((column) => !known.includes(column)) : [];
  const place = new Map(table.columns.map((column, i) => [column, i])), makeId = idOf(model), seen = new Set();
  const value = (row, column, i) => {
    const text = row[place.get(column)].trim();
    if (text === "") return null;
    if (known && model.columns[column] !== "number") return text;
    // Numbers with units or commas are for the service to read: it knows how the column was written at fit.
    const read = Number(text);
    if (Number.isFinite(read)) return read;
    if (known) return text;
    throw new TableError(`${table.name}: “${column}” of row ${i + 1} is “${text}”, expected a number.`);
  };
  const nodes = table.rows.map((row, i) => {
    const name = makeId(row[place.get(id)], `“${id}” of row ${i + 1} in ${table.name}`);
    if (name === "") throw new TableError(`${table.name}: row ${i + 1} has no id.`);
    if (seen.has(name)) throw new TableError(`${table.name}: the id “${name}” is there twice.`);
    seen.add(name);
    if (!known) return { id: name, x: own.map((column) => value(row, column, i)) };
    return { [id]: name, ...Object.fromEntries(known.map((column) => [column, value(row, column, i)])) };
  });
  return { nodes, notes: extra.length ? [`Columns that the model does not read are ignored: ${listed(extra)}.`] : [] };
}

// Edges with an end among the rows; the others are said to be left out.
export function edgesOf(table, model, ids) {
  const [source, target] = ends(table, model), makeId = idOf(model);
  const weight = model.weight_column ? table.columns.indexOf(model.weight_column) : -1;
  if (model.weight_column && weight < 0) throw new TableError(`${table.name} has no column “${model.weight_column}”, but edges of this graph have weights.`);
  const edges = table.rows.map((row, i) => {
    const edge = [source, target].map((place) => makeId(row[place].trim(), `“${table.columns[place]}” of row ${i + 1} in ${table.name}`));
    if (weight < 0) return edge;
    const own = Number(row[weight]);
    if (row[weight].trim() === "" || !Number.isFinite(own)) throw new TableError(`${table.name}: the weight of row ${i + 1} is “${row[weight]}”, expected a number.`);
    return [...edge, own];
  });
  const used = edges.filter(([a, b]) => ids.has(a) || ids.has(b)), rest = edges.length - used.length;
  return { edges: used, notes: rest ? [`${count(rest, "edge")} of ${table.name} ${rest === 1 ? "has" : "have"} no end among the rows, and ${rest === 1 ? "is" : "are"} left out.`] : [] };
}

function ends(table, model) {
  const wanted = [model.source_column ?? "source", model.target_column ?? "target"];
  const places = wanted.map((name) => table.columns.indexOf(name));
  if (places.every((place) => place >= 0)) return places;
  // As everywhere in oddnode: without a column of each name, the first two columns.
  if (!model.source_column && table.columns.length >= 2 && table.columns.length <= 3) return [0, 1];
  throw new TableError(`${table.name} has neither a column “${model.id_column}” of nodes nor the columns ${listed(wanted)} of edges; its columns are ${listed(table.columns)}.`);
}

// A header to fill in.
export const template = (model) => [model.id_column, ...(model.columns ? Object.keys(model.columns) : Array.from({ length: model.features }, (_, i) => `x${i}`))]
  .map((name) => (/[",\n\r]/.test(name) ? `"${name.replaceAll('"', '""')}"` : name)).join(",");
