// Elements, and numbers as text. Text is only ever set as text: no function here reads markup.

export const $ = (id) => document.getElementById(id);

const NS = "http://www.w3.org/2000/svg";

function fill(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(2).filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}
export const element = (tag, attributes = {}, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes = {}, ...children) => fill(document.createElementNS(NS, tag), attributes, children);

export const count = (number, word) => `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;
export const short = (text, most = 14) => (String(text).length > most ? `${String(text).slice(0, most - 1)}…` : String(text));
export const percent = (share) => {
  const value = 100 * share;
  return `${Number(value >= 10 ? value.toFixed(0) : value >= 0.095 ? value.toFixed(1) : value.toPrecision(1))}\u00a0%`;
};
export const number = (value) => (Number.isInteger(value) ? value.toLocaleString("en") : Number(value.toPrecision(4)).toString());

const seconds = (value) => new Date(1000 * value);
export const clock = (value) => seconds(value).toLocaleTimeString("en-GB");
export const minute = (value) => seconds(value).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
export const moment = (value) => `${seconds(value).toLocaleDateString("en-GB", { day: "numeric", month: "short" })}, ${clock(value)}`;
export const time = (value) => element("time", { datetime: seconds(value).toISOString(), title: moment(value) }, clock(value));

// Sentences put names of columns in backticks.
export const coded = (text) => text.split("`").map((part, i) => (i % 2 ? element("code", {}, part) : part));

// The mark of a node, as in the reports: a shape and a colour say the same.
export const kindOf = (isFlagged) => (isFlagged === null ? "other" : isFlagged ? "unknown" : "known");
export const mark = (isFlagged) => element("i", { class: `mark ${kindOf(isFlagged)}`, "aria-hidden": "true" });
export const fact = (name, ...values) => element("div", {}, element("span", {}, name), element("b", {}, ...values));

export const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
export const show = (target) => target.scrollIntoView({ block: "start", behavior: calm() ? "auto" : "smooth" });

// At most one call in so many milliseconds, the last one included.
export function seldom(run, wait) {
  let timer = null, again = false;
  return function call() {
    if (timer !== null) { again = true; return; }
    run();
    timer = setTimeout(() => { timer = null; if (again) { again = false; call(); } }, wait);
  };
}
