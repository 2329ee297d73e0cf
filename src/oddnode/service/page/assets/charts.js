// The few charts of the page, drawn at the width that they have.

import { count, element, minute, percent, svg } from "./dom.js";

const widthOf = (place) => Math.max(280, Math.round(place.getBoundingClientRect().width));
const NOTABLE = Math.log(10); // a kind of evidence counts as notable from here on: a tenth of known nodes have as much

export function drawShares(place, windows, { false_alarm_rate: rate, rate_interval: between }) {
  const width = widthOf(place), height = 176, left = 42, right = 12, top = 14, bottom = 26;
  if (!windows.length) {
    place.replaceChildren(element("p", { class: "empty" }, "Nothing has arrived yet. The share of flagged arrivals will be drawn here."));
    return;
  }
  const since = windows[0].since, until = windows.at(-1).until, span = until - since || 1;
  const middle = (w) => (w.since + w.until) / 2;
  const high = Math.min(1, 1.05 * Math.max(between?.[1] ?? 0, ...windows.map((w) => w.high)));
  const step = [0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.25, 0.5].find((each) => high / each <= 4) ?? 0.5;
  const x = (t) => left + 8 + ((width - left - right - 16) * (windows.length > 1 ? (t - since) / span : 0.5));
  const y = (share) => top + (height - top - bottom) * (1 - Math.min(share, high) / high);
  const parts = [];
  for (let share = 0; share <= high + 1e-9; share += step) {
    parts.push(svg("line", { class: "grid", x1: left, x2: width - right, y1: y(share), y2: y(share) }),
      svg("text", { x: left - 6, y: y(share) + 4, "text-anchor": "end" }, `${Math.round(1000 * share) / 10} %`));
  }
  const ticks = Math.max(2, Math.min(7, Math.floor((width - left) / 110)));
  const format = span > 2 * 86_400 ? (t) => new Date(1000 * t).toLocaleDateString("en-GB", { day: "numeric", month: "short" }) : span < 600 ? (t) => new Date(1000 * t).toLocaleTimeString("en-GB") : minute;
  for (let k = 0; k < ticks && windows.length > 1; k += 1) {
    const t = since + (span * k) / (ticks - 1);
    parts.push(svg("text", { x: x(t), y: height - 6, "text-anchor": k === 0 ? "start" : k === ticks - 1 ? "end" : "middle" }, format(t)));
  }
  const line = windows.map((w) => `${x(middle(w)).toFixed(1)},${y(w.flagged / w.count).toFixed(1)}`);
  const edge = (value) => windows.map((w) => `${x(middle(w)).toFixed(1)},${y(w[value]).toFixed(1)}`);
  parts.push(svg("polygon", { class: "band", points: [...edge("high"), ...edge("low").reverse()].join(" ") }));
  if (rate !== null) {
    parts.push(svg("rect", { class: "rate", x: left, width: width - left - right, y: y(between[1]), height: y(between[0]) - y(between[1]) }),
      svg("line", { class: "rate", x1: left, x2: width - right, y1: y(rate), y2: y(rate) }));
  }
  parts.push(svg("polyline", { class: "share", points: line.join(" ") }));
  for (const w of windows) {
    const isAbove = rate !== null && w.low > rate;
    parts.push(svg("g", {}, svg("title", {}, describe(w)), svg("line", { class: "interval", x1: x(middle(w)), x2: x(middle(w)), y1: y(w.low), y2: y(w.high) }),
      svg("circle", { class: isAbove ? "above" : "", cx: x(middle(w)), cy: y(w.flagged / w.count), r: 4 })));
  }
  const last = windows.at(-1), above = rate === null ? 0 : windows.filter((w) => w.low > rate).length;
  place.replaceChildren(svg("svg", {
    viewBox: `0 0 ${width} ${height}`, role: "img",
    "aria-label": `Flagged share in ${count(windows.length, "window")}; the last: ${describe(last)}. In ${above} of them the whole interval is above the calibrated rate.`,
  }, parts));
}

export const describe = (w) => `${minute(w.since)} to ${minute(w.until)}: ${w.flagged} of ${w.count} flagged, ${percent(w.flagged / w.count)} (${percent(w.low)} to ${percent(w.high)})`;

// Bars with a name before and a number behind each, as text of the page, so that they are read and copied as a table.
function bars(rows, most, caption, heads) {
  return element("table", { class: "bars" }, element("caption", { class: "unseen" }, caption),
    element("thead", { class: "unseen" }, element("tr", {}, heads.map((head) => element("th", { scope: "col" }, head)))),
    element("tbody", {}, rows.map(({ name, value, text, className, title }) => element("tr", { class: className, title },
      element("th", { scope: "row" }, name),
      element("td", { class: "bar-cell" }, svg("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" },
        svg("rect", { class: "track", width: 100, height: 10 }), svg("rect", { class: "fill", width: (100 * Math.min(1, value / most)).toFixed(1), height: 10 }))),
      element("td", { class: "num" }, text)))));
}

// The notable kinds, or the strongest three, and the others folded away. A surprise of 0 does not count for the node.
export function drawEvidence(kinds) {
  if (!kinds.length) return [element("p", { class: "hint" }, "The method of this model does not combine several kinds of evidence.")];
  const sorted = kinds.filter((each) => each.surprise > 0).sort((p, q) => q.surprise - p.surprise), most = Math.max(NOTABLE * 1.5, sorted[0]?.surprise ?? 0);
  const first = Math.max(3, sorted.filter((each) => each.surprise >= NOTABLE).length), idle = kinds.length - sorted.length;
  const table = (some, caption) => bars(some.map((each) => {
    const share = percent(Math.exp(-each.surprise));
    return {
      name: each.kind, value: each.surprise, className: each.surprise >= NOTABLE ? "notable" : "", text: share,
      title: `${share} of known nodes are as unusual; surprise ${each.surprise.toFixed(2)}, it adds ${each.contribution.toFixed(2)}`,
    };
  }), most, caption, ["Kind", "Strength", "Known nodes that are as unusual"]);
  const rest = sorted.slice(first);
  return [table(sorted.slice(0, first), "The strongest evidence against the node"), rest.length + idle ? element("details", {}, element("summary", {}, `${count(rest.length + idle, "kind")} of evidence that ${rest.length + idle === 1 ? "is" : "are"} not unusual`),
    rest.length ? table(rest, "The other kinds of evidence") : null, idle ? element("p", { class: "hint" }, `Not counted for this node: ${kinds.filter((each) => !(each.surprise > 0)).map((each) => each.kind).join(", ")}.`) : null) : null];
}

export function drawForecast(forecast) {
  const rows = forecast.map(([name, summary, share]) => ({ name: summary || name, value: share, text: percent(share), className: "forecast", title: name }));
  return bars(rows, 1, "What the model is expected to catch, by kind of change", ["Change", "Share", "Caught"]);
}
