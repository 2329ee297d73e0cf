// The page: what arrives, the node that is chosen, the shares over time, the model.

import { Problem, get, hasToken, listen, nodePath, post, setToken } from "./api.js";
import { describe, drawEvidence, drawForecast, drawShares } from "./charts.js";
import { $, clock, coded, count, element, fact, kindOf, mark, moment, number, percent, seldom, short, show, time } from "./dom.js";
import { drawAround, drawGrid, nodesOf } from "./picture.js";
import { setUpTable } from "./table.js";

const KEPT = 1000, PAGE = 50, MOST_LINKS = 24;
const VERDICTS = { known: "known after all", unknown: "really unknown" };

// Lists of arrivals, the newest first. `ends` says that the service has no older ones.
const lists = { all: makeList(), flagged: makeList(), alerts: makeList() };
function makeList() { return { items: [], keys: new Set(), ends: false }; }
const state = { status: null, filter: "all", shown: PAGE, paused: false, held: [], chosen: null, isTyped: false, alert: null, news: [], connected: false, isFirst: true };

const keyOf = (item) => item.alert ?? `${item.version} ${item.answer.id}`;
function add(list, items, older = false) {
  const fresh = items.filter((item) => !list.keys.has(keyOf(item)));
  for (const item of fresh) list.keys.add(keyOf(item));
  list.items = older ? [...list.items, ...fresh] : [...fresh, ...list.items];
  if (!older) list.items.sort((p, q) => q.time - p.time || q.version - p.version);
  for (const item of list.items.splice(KEPT)) { list.keys.delete(keyOf(item)); list.ends = false; }
  return fresh;
}
const asItem = (record) => ({ version: record.answer.version, time: record.time, alert: record.number, answer: record.answer, verdict: record.verdict, note: record.note });
const verdictOf = (alert) => lists.alerts.items.find((item) => item.alert === alert)?.verdict ?? null;

// ---- the list

const listed = () => ({
  all: () => lists.all.items, flagged: () => lists.flagged.items,
  open: () => lists.alerts.items.filter((item) => !item.verdict), checked: () => lists.alerts.items.filter((item) => item.verdict),
})[state.filter]();
const EMPTY = {
  all: "Nothing has arrived since the service started. Post a change to the API, and it is listed here.",
  flagged: "No arrival has been flagged.", open: "Nothing to check: every alert has been marked.", checked: "No alert has been marked yet.",
  readOnly: "This service takes no changes, so that nothing arrives here. Start it with --state to change that; search works, and so does a table of your own.",
};

function row(item) {
  const { answer } = item, verdict = item.verdict ?? verdictOf(item.alert);
  const why = answer.is_ood ? (answer.is_far ? "features far out of range" : answer.reason ?? "no kind of evidence by itself") : `predicted ${answer.predicted}`;
  return element("li", {}, element("button", { type: "button", class: `arrival ${kindOf(answer.is_ood)}`, "data-key": keyOf(item), tabindex: -1, onclick: () => choose(answer.id, item.alert) },
    mark(answer.is_ood), element("b", { class: "id" }, String(answer.id)), element("span", { class: "p" }, answer.p_value === null ? "" : `p ${percent(answer.p_value)}`),
    element("span", { class: "reason" }, answer.is_ood ? element("span", { class: "unseen" }, "flagged: ") : null, why), verdict ? element("span", { class: "verdict" }, VERDICTS[verdict]) : null, time(item.time)));
}

const drawn = new Map(); // rows are made once
function showList() {
  const items = listed(), place = $("list"), keys = new Set(items.slice(0, state.shown).map(keyOf));
  const focused = document.activeElement?.dataset?.key;
  for (const key of drawn.keys()) if (!keys.has(key)) drawn.delete(key);
  const rows = items.slice(0, state.shown).map((item) => {
    const key = keyOf(item);
    if (!drawn.has(key)) drawn.set(key, row(item));
    return drawn.get(key);
  });
  // Rows that stay are not touched, so that the focus and what is selected stay, too.
  const stay = new Set(rows);
  for (const old of [...place.children]) if (!stay.has(old)) old.remove();
  rows.forEach((each, i) => { if (place.children[i] !== each) place.insertBefore(each, place.children[i] ?? null); });
  $("list-empty").hidden = rows.length > 0 || !state.status;
  $("list-empty").textContent = state.status?.service.takes_changes === false ? EMPTY.readOnly : EMPTY[state.filter];
  const list = { all: lists.all, flagged: lists.flagged }[state.filter] ?? lists.alerts;
  $("older").hidden = items.length <= state.shown && (list.ends || items.length >= KEPT || list === lists.alerts);
  if (focused && document.activeElement === document.body) (place.querySelector(`[data-key="${CSS.escape(focused)}"]`) ?? place.querySelector("button"))?.focus();
  markChosen();
}

function markChosen() {
  const buttons = [...$("list").querySelectorAll("button")];
  let current = null;
  for (const button of buttons) {
    const isChosen = String(button.querySelector(".id").textContent) === String(state.chosen ?? "") && state.chosen !== null;
    if (isChosen) button.setAttribute("aria-current", "true"); else button.removeAttribute("aria-current");
    if (isChosen) current ??= button;
  }
  // One of the rows is reached by Tab, the others from it by the arrow keys.
  const inside = buttons.find((button) => button === document.activeElement);
  for (const button of buttons) button.tabIndex = button === (inside ?? current ?? buttons[0]) ? 0 : -1;
}

$("list").addEventListener("keydown", (event) => {
  const buttons = [...$("list").querySelectorAll("button")], at = buttons.indexOf(document.activeElement);
  const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: buttons.length - 1 }[event.key];
  if (at < 0 || to === undefined) return;
  event.preventDefault();
  const next = buttons[Math.max(0, Math.min(buttons.length - 1, to))];
  next.focus();
  markChosen();
});
$("list").addEventListener("focusout", () => setTimeout(release, 0));
$("list").addEventListener("pointerleave", () => setTimeout(release, 0));
$("filter").addEventListener("change", (event) => { state.filter = event.target.value; state.shown = PAGE; drawn.clear(); $("list").scrollTop = 0; showList(); });
$("older").addEventListener("click", async () => {
  state.shown += PAGE;
  const list = lists[state.filter];
  if (list && list.items.length < state.shown && !list.ends) await older(list, state.filter === "flagged");
  showList();
});
async function older(list, isFlagged) {
  await tried(async () => {
    const found = await get(`v1/arrivals?limit=${PAGE}&before=${list.items.at(-1).version}${isFlagged ? "&flagged=true" : ""}`);
    list.ends = found.next === null;
    add(list, found.arrivals, true);
  });
}

// A list that someone reads stands still: what arrives meanwhile is held back.
const isRead = () => state.paused || $("list").matches(":focus-within") || ($("list").matches(":hover") && matchMedia("(hover: hover)").matches);
function release() {
  if (isRead()) return;
  take();
}
function take() {
  const items = state.held.splice(0);
  $("held").hidden = true;
  if (!items.length) return;
  add(lists.all, items);
  add(lists.flagged, items.filter((item) => item.answer.is_ood));
  showList();
}
const arrive = seldom(() => {
  if (!isRead()) { take(); return; }
  $("held").hidden = !state.held.length;
  $("held").textContent = `Show ${count(state.held.length, "new arrival")}${state.held.length >= KEPT ? " or more" : ""}`;
}, 300);
$("held").addEventListener("click", () => { take(); $("list").scrollTop = 0; $("list").querySelector("button")?.focus({ preventScroll: true }); });
$("pause").addEventListener("click", () => {
  state.paused = !state.paused;
  $("pause").setAttribute("aria-pressed", String(state.paused));
  $("pause").textContent = state.paused ? "Continue" : "Pause";
  release();
});

// ---- one node

// The address names the node, so that a link leads to it, and the browser's Back button to the one before.
const PREFIX = "#node=";
function choose(id, alert = null, { quiet = false, isTyped = false } = {}) {
  state.chosen = id;
  state.isTyped = isTyped;
  state.alert = alert;
  if (!quiet) $("follow").checked = false;
  const address = PREFIX + encodeURIComponent(id);
  if (location.hash !== address) history[quiet ? "replaceState" : "pushState"](null, "", address);
  markChosen();
  return showNode(!quiet);
}
addEventListener("popstate", () => {
  if (!location.hash.startsWith(PREFIX)) return;
  const id = decodeURIComponent(location.hash.slice(PREFIX.length));
  if (id !== String(state.chosen)) { $("follow").checked = false; state.chosen = id; state.isTyped = true; state.alert = null; markChosen(); showNode(false); }
});

let latest = 0;
async function showNode(isAsked) {
  const id = state.chosen, turn = (latest += 1);
  $("node").setAttribute("aria-busy", "true");
  try {
    const [found, around] = await Promise.all([get(`v1/nodes/${nodePath(id, state.isTyped, "explain=true")}`), get(`v1/neighbourhood/${nodePath(id, state.isTyped, "hops=2&limit=46")}`)]);
    const own = state.alert ?? lists.alerts.items.find((item) => String(item.answer.id) === String(id))?.alert ?? null;
    const record = own === null ? null : await get(`v1/alerts/${own}`).catch(() => null);
    if (turn === latest) drawNode(found, around.neighbourhood, record);
  } catch (error) {
    if (turn !== latest) return;
    $("node-title").replaceChildren(short(id, 60));
    $("node-content").replaceChildren(element("p", { class: "notice" }, error.status === 404 ? `There is no node with the id “${id}” in the graph.` : error.message));
    askFor(error);
  }
  $("node").removeAttribute("aria-busy");
  if (!isAsked) return;
  if ($("node").getBoundingClientRect().top > innerHeight - 160 || $("node").getBoundingClientRect().top < 0) show($("node"));
  if (!$("list").contains(document.activeElement) || matchMedia("(max-width: 800px)").matches) $("node-title").focus({ preventScroll: true });
}

function drawNode({ row: columns, num_neighbours: degree, answer }, around, record) {
  const { id } = answer;
  const then = record?.answer ?? null, shown = then ?? answer, isFlagged = shown.is_ood;
  $("node-title").replaceChildren(mark(isFlagged), element("span", {}, `${id} ${isFlagged === null ? "is not judged" : isFlagged ? "does not fit" : "fits"}`));
  const why = [then?.why, answer.why].find(Boolean) ?? null, unseen = Object.entries(shown.unseen ?? {});
  const facts = element("div", { class: "facts" }, drawGrid(columns),
    fact("p-value", shown.p_value === null ? "none" : percent(shown.p_value)),
    fact("predicted", `${shown.predicted} (${percent(shown.confidence)})`), fact("neighbours", degree.toLocaleString("en")));
  const notes = [shown.p_value === null ? "" : `${percent(shown.p_value)} of known nodes score as low.`, record ? `Arrived ${moment(record.time)}.` : "", `Score ${number(shown.score)}${shown.exact ? "" : ", close to that of the whole graph, not equal to it"}.`,
    then && answer.p_value !== null && percent(answer.p_value) !== percent(then.p_value) ? `In the graph as it is now the p-value is ${percent(answer.p_value)}.` : ""].filter(Boolean).join(" ");
  const nodes = nodesOf(around), near = nodes.filter((node) => node.hop === 1);
  const chips = near.slice(0, MOST_LINKS).map((node) => element("li", {}, element("button", { type: "button", class: kindOf(node.isFlagged), onclick: () => choose(node.id) }, `${short(node.id, 24)} · ${node.predicted}`)));
  const others = Object.entries(columns);
  const figure = element("figure", { class: "around" }, drawAround(around, (other) => choose(other)), element("figcaption", { class: "key" },
    element("span", {}, mark(false), "fits"), element("span", {}, mark(true), "flagged"), nodes.some((node) => node.isFlagged === null) ? element("span", {}, mark(null), "not judged") : null,
    nodes.slice(1).some((node) => node.isNew) ? element("span", {}, element("i", { class: "mark circle" }), "an arrival") : null, element("span", {}, element("i", { class: "mark chosen" }), "this node")));
  const neighbourList = near.length ? element("ul", { class: "near", "aria-label": "Neighbours" }, chips, degree > chips.length ? element("li", { class: "hint" }, `and ${(degree - chips.length).toLocaleString("en")} more`) : null)
    : element("p", { class: "hint" }, degree ? "" : "It has no edges, so it is judged by its features alone.");
  $("node-content").replaceChildren(
    element("div", { class: "said" }, facts, notes ? element("p", { class: "hint notes" }, notes) : null,
      isFlagged && why ? element("p", { class: "why" }, element("b", {}, "Why it is flagged: "), ...coded(why)) : null,
      unseen.map(([column, value]) => element("p", { class: "why" }, `The model has never seen “${value}” in the column “${column}”.`)), record ? drawVerdict(record) : null),
    element("div", { class: "shown" }, element("h3", {}, "What is around it"), figure, neighbourList),
    element("div", { class: "said" }, element("h3", {}, "Evidence against it"),
      shown.evidence.length ? element("p", { class: "hint" }, "The share of known nodes that are as unusual in each way; the smaller it is, the longer the bar.") : null, drawEvidence(shown.evidence)),
    element("details", { class: "columns" }, element("summary", {}, `Its row: ${count(others.length, "column")}`),
      element("dl", { class: "row" }, others.map(([name, value]) => [element("dt", {}, name), element("dd", {}, Array.isArray(value) ? value.map(number).join(", ") : value === null ? "–" : typeof value === "number" ? number(value) : String(value))]))),
  );
}

function drawVerdict(record) {
  const note = element("input", { type: "text", id: "note", maxlength: 500, placeholder: "Note, if you like", "aria-label": "Note", value: record.note ?? "" });
  const said = element("span", { class: "hint", role: "status" }, record.verdict ? `Marked as ${VERDICTS[record.verdict]}.` : "");
  const button = (verdict, text) => element("button", { type: "button", "data-verdict": verdict, "aria-pressed": String(record.verdict === verdict), onclick: async (event) => {
    const pressed = event.currentTarget;
    await tried(async () => {
      await post(`v1/alerts/${record.number}/feedback`, { verdict, note: note.value.trim() });
      for (const each of pressed.parentElement.querySelectorAll("[data-verdict]")) each.setAttribute("aria-pressed", String(each === pressed));
      said.textContent = `Marked as ${VERDICTS[verdict]}.`;
      marked(record.number, verdict, note.value.trim());
      await readStatus();
    }, (text) => { said.textContent = text; });
  } }, text);
  // A link cannot carry a token.
  const print = hasToken() ? null : element("a", { href: `v1/alerts/${record.number}/page`, target: "_blank", rel: "noopener" }, "Page to print");
  return element("div", { class: "verdicts" }, button("known", "Known after all"), button("unknown", "Really unknown"), note, print, said);
}

function marked(alert, verdict, note) {
  const item = lists.alerts.items.find((each) => each.alert === alert);
  if (item) Object.assign(item, { verdict, note });
  drawn.delete(alert);
  showList();
  loadStatus();
}

$("search").addEventListener("submit", (event) => {
  event.preventDefault();
  const id = $("search-id").value.trim();
  if (id) choose(id, null, { isTyped: true });
});

// ---- shares, drift, facts

function showStatus() {
  const { model, graph, counts, alerts, windows, drift } = state.status, rate = model.false_alarm_rate;
  $("headline").textContent = !counts.arrivals ? "Nothing has arrived yet."
    : rate === null ? `${count(counts.arrivals, "arrival")}; the model has no threshold.`
      : counts.flagged ? `${counts.flagged.toLocaleString("en")} of ${count(counts.arrivals, "arrival")} ${counts.flagged === 1 ? "does" : "do"} not fit.` : `All of ${count(counts.arrivals, "arrival")} fit.`;
  const chance = rate === null ? 0 : rate * counts.arrivals;
  $("lead").textContent = rate === null ? "Calibrate the model, and arrivals are flagged here." : counts.arrivals
    ? `If all were like known nodes, chance would flag about ${chance.toFixed(chance < 10 ? 1 : 0)}: the model was calibrated to flag ${percent(rate)} of them.`
    : `Arrivals appear here as they come. The model was calibrated to flag ${percent(rate)} of known nodes.`;
  $("num-open").textContent = alerts?.open ? alerts.open.toLocaleString("en") : "";
  const tile = (name, value) => element("div", {}, element("dt", {}, name), element("dd", {}, value));
  $("tiles").hidden = false;
  $("tiles").replaceChildren(tile("nodes in the graph", graph.nodes.toLocaleString("en")),
    ...(alerts ? [tile("to check", alerts.open.toLocaleString("en")), tile("known after all", alerts.known.toLocaleString("en")), tile("really unknown", alerts.unknown.toLocaleString("en"))] : []));
  $("rate-key").hidden = rate === null;
  $("rate").textContent = rate === null ? "" : `calibrated: ${percent(rate)}`;
  drawShares($("shares"), windows, model);
  const cell = (value, name) => element("td", { class: "num", "data-label": name }, value);
  $("windows").hidden = !windows.length;
  $("windows-table").replaceChildren(element("thead", {}, element("tr", {}, ["window", "arrivals", "flagged", "share", "interval"].map((name, i) => element("th", { scope: "col", class: i ? "num" : null }, name)))),
    element("tbody", {}, [...windows].reverse().map((w) => element("tr", { title: describe(w) }, element("td", { class: "name" }, `${clock(w.since)} – ${clock(w.until)}`), cell(String(w.count), "arrivals"), cell(String(w.flagged), "flagged"), cell(percent(w.flagged / w.count), "share"), cell(`${percent(w.low)} – ${percent(w.high)}`, "interval")))));
  showDrift(drift);
  const facts = (place, pairs) => place.replaceChildren(...pairs.filter(([, value]) => value !== null && value !== undefined).flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]));
  facts($("model-facts"), [["Method", model.method], ["Classes", model.classes.map(String).map((each) => short(each, 40)).join(", ")], ["False-alarm rate", rate === null ? "not calibrated" : percent(rate)],
    ["Calibrated on", model.num_calibration ? `${count(model.num_calibration, "known node")}: the true rate is between ${percent(model.rate_interval[0])} and ${percent(model.rate_interval[1])}` : null], ["Reads", model.columns ? count(Object.keys(model.columns).length, "column") : count(model.features, "feature")], ["Version", element("code", {}, model.hash)]]);
  facts($("graph-facts"), [["Nodes", graph.nodes.toLocaleString("en")], ["Added or changed", counts.arrivals.toLocaleString("en")], ["Edges", `${graph.directed ? "directed" : "undirected"}${model.weight_column ? `, with weights in “${model.weight_column}”` : ""}`], ["Changes so far", graph.version.toLocaleString("en")], ["Base", element("code", {}, graph.base)]]);
  $("forecast-panel").hidden = !model.forecast.length;
  if (model.forecast.length) $("forecast").replaceChildren(drawForecast(model.forecast));
}

function showDrift(drift) {
  if (!drift?.count) { $("drift").replaceChildren(); return; }
  const power = drift.log10_evidence, odds = power >= 6 ? "more than a million" : number(Math.max(1, Math.round(10 ** power)));
  $("drift").replaceChildren(element("p", { class: drift.alarm ? "verdict-line alarm" : "verdict-line" }, ...(drift.alarm
    ? [element("b", {}, "Arrivals have drifted. "), `They no longer score as known nodes, since ${clock(drift.alarm)} at the latest; the evidence against chance is ${odds} to 1. If nothing had changed, this would ever be said with a probability of ${percent(drift.chance)}.`]
    : [element("b", {}, "No drift so far. "), `Since the service started, the evidence that arrivals do not score as known nodes is ${odds} to 1; drift is said at ${number(1 / drift.chance)} to 1.`])));
}

const readStatus = () => tried(async () => { state.status = await get("v1/status"); showStatus(); table.update(state.status); });
const loadStatus = seldom(readStatus, 4000);

// ---- the connection

async function tried(work, tell = null) {
  try {
    return await work();
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    if (askFor(error) && !tell) return null;
    // A lost connection is said by the stream of events.
    if (tell) tell(error.message); else if (error.status) complain(error.message);
    return null;
  }
}

// Without the right to ask, the page asks for a token.
function askFor(error) {
  if (error.status !== 401 && error.status !== 403) return false;
  document.documentElement.dataset.ready = "yes"; // for someone to type
  if ($("token").hidden) {
    $("token").hidden = false;
    if (error.status === 403) $("token-text").textContent = `${error.message} A token that may write is needed for this; the page keeps it until you close or reload it.`;
    $("token-value").focus();
  } else if ($("token-value").dataset.tried) $("token-text").textContent = "This token is not the right one. Check it, and try again.";
  return true;
}
$("token").addEventListener("submit", (event) => {
  event.preventDefault();
  setToken($("token-value").value.trim());
  $("token-value").value = "";
  $("token-value").dataset.tried = "yes";
  events.retry();
  load();
});

const pill = (text, kind) => { if ($("pill").textContent !== text) $("pill").textContent = text; $("pill").className = `pill ${kind}`; };
function complain(text, hasRetry = false) {
  $("lost").hidden = false;
  $("lost-text").textContent = text;
  $("retry").textContent = hasRetry ? "Try now" : "Close";
}
$("retry").addEventListener("click", () => { if (state.connected) $("lost").hidden = true; else { $("lost-text").textContent = "Trying again …"; events.retry(); } });

async function load() {
  try {
    await loadAll();
    $("lost").hidden = true;
  } catch (error) {
    if (!(error instanceof Problem)) throw error;
    if (askFor(error)) return;
    complain(`The service is not ready: ${error.message}.`);
    setTimeout(() => { if (state.connected) load(); }, 1000);
  }
}

async function loadAll() {
  const status = await get("v1/status");
  const [all, flagged, alerts] = await Promise.all([get(`v1/arrivals?limit=${PAGE}`), get(`v1/arrivals?limit=${PAGE}&flagged=true`), status.alerts ? get("v1/alerts?limit=200") : { alerts: [] }]);
  for (const [list, found] of [[lists.all, all], [lists.flagged, flagged]]) {
    // After a long silence the list begins anew: between what is known and what is new there may be a gap.
    if (list.items.length && found.arrivals.length === PAGE && !found.arrivals.some((item) => list.keys.has(keyOf(item)))) Object.assign(list, makeList());
    if (!list.items.length) list.ends = found.next === null;
    add(list, found.arrivals);
  }
  Object.assign(lists.alerts, makeList());
  add(lists.alerts, alerts.alerts.map(asItem));
  state.status = status;
  $("token").hidden = true;
  drawn.clear();
  table.update(status);
  showStatus();
  showList();
  begin();
  document.documentElement.dataset.ready = "yes";
}

// The node that the address names, or else the newest alert or arrival.
function begin() {
  if (!state.isFirst) return;
  state.isFirst = false;
  if (location.hash.startsWith(PREFIX)) {
    $("follow").checked = false;
    choose(decodeURIComponent(location.hash.slice(PREFIX.length)), null, { quiet: true, isTyped: true });
    return;
  }
  const [first] = lists.alerts.items.length ? lists.alerts.items : lists.all.items;
  if (first) choose(first.answer.id, first.alert, { quiet: true });
}

const followAlert = seldom(() => {
  const [newest] = lists.alerts.items;
  if (newest && $("follow").checked && !$("node").matches(":focus-within, :hover") && !document.hidden) choose(newest.answer.id, newest.alert, { quiet: true });
}, 6000);
// Readers of the screen hear of alerts now and then, not of each.
const announce = seldom(() => {
  const news = state.news.splice(0);
  if (news.length) $("announce").textContent = `${count(news.length, "new alert")}: ${news.slice(-3).map((id) => short(id, 30)).join(", ")}${news.length > 3 ? " and others" : ""}.`;
}, 15_000);

const HANDLERS = {
  arrival(item) {
    state.held.unshift(item);
    if (state.held.length > KEPT) state.held.length = KEPT;
    arrive();
    loadStatus();
  },
  alert(record) {
    add(lists.alerts, [asItem(record)]);
    state.news.push(String(record.answer.id));
    arrive();
    followAlert();
    announce();
  },
  feedback({ alert, verdict, note }) { marked(alert, verdict, note); },
  state() { loadStatus(); },
};

const table = setUpTable(tried);
const events = listen({
  onopen() {
    state.connected = true;
    pill("live", "on");
    $("lost").hidden = true;
    load();
  },
  onevent(kind, data) { HANDLERS[kind]?.(data); },
  onlost(error, wait) {
    state.connected = false;
    pill("not connected", "off");
    if (askFor(error)) return;
    complain(`${error.message || "The connection was lost."} What you see is from ${clock(Date.now() / 1000)} or before. Trying again ${wait < 1500 ? "at once" : `in ${Math.round(wait / 1000)} seconds`}.`, true);
  },
});

setInterval(loadStatus, 30_000);
const redraw = seldom(() => { if (state.status) drawShares($("shares"), state.status.windows, state.status.model); }, 150);
new ResizeObserver(redraw).observe($("shares"));

// A table that is wider than its place shows every row as a block, as in the reports.
const watcher = new ResizeObserver((entries) => entries.forEach(({ target }) => {
  target.classList.remove("stacked");
  target.classList.toggle("stacked", target.scrollWidth > target.clientWidth + 1);
}));
document.querySelectorAll(".fit").forEach((place) => watcher.observe(place));

function nameTheme() {
  const isDark = document.documentElement.dataset.theme === "dark";
  $("theme").setAttribute("aria-label", isDark ? "Switch to light colours" : "Switch to dark colours");
  $("theme-name").textContent = isDark ? " Light" : " Dark";
}
new MutationObserver(nameTheme).observe(document.documentElement, { attributeFilter: ["data-theme"] });
nameTheme();
$("theme").addEventListener("click", () => {
  const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  try { localStorage.setItem("oddnode-theme", theme); } catch { /* then it only applies to this visit */ }
  document.documentElement.dataset.theme = theme;
});
