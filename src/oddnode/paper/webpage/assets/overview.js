const METRICS = { fpr95: "FPR95 ↓", auroc: "AUROC ↑", aupr: "AUPR ↑", id_acc: "ID acc ↑" };
const MEANINGS = {
  fpr95: "the share of unknown nodes that is let through by the threshold that accepts 95 % of the known ones",
  auroc: "the chance that a random known node scores higher than a random unknown one; 50 is guessing",
  aupr: "average precision with the known nodes as the positive class",
  id_acc: "the share of known test nodes that get the right class",
};
const LOWER_IS_BETTER = new Set(["fpr95"]);
const ALL = "mean of all tasks";

// A method's name with its mark: an asterisk if it learns from exposed nodes.
const starred = (method) => (data.methods[method].exposure ? `${method} *` : method);

// ---- all methods

const over = { protocol: "", cell: ALL, metric: "fpr95" };

function rowsOf(protocol, task) {
  return data.rows.filter((row) => row.protocol === protocol && (task === undefined || row.task === task));
}

const complete = (values) => values.length > 0 && values.every((value) => value !== null);

// The mean over the cells for every seed; the mean of all and, where every cell has the same seeds, their ends.
function summary(rows, metric) {
  const bySeed = rows.map((row) => row.numbers[metric].seeds);
  const means = bySeed.map(mean), paired = bySeed.every((seeds) => seeds.length === bySeed[0].length);
  const overCells = paired ? bySeed[0].map((_, i) => mean(bySeed.map((seeds) => seeds[i]))) : means.slice(0, 1).fill(mean(means));
  const printed = rows.map((row) => row.numbers[metric].printed);
  return { ours: mean(means), low: Math.min(...overCells), high: Math.max(...overCells), printed: printed.includes(null) ? null : mean(printed) };
}

function methodNumbers(method, metric) {
  const rows = rowsOf(over.protocol).filter((row) => row.method === method && row.numbers[metric]);
  const chosen = over.cell === ALL ? rows : rows.filter((row) => row.task === over.cell);
  const tasks = over.cell === ALL ? unique(rowsOf(over.protocol).map((row) => row.task)).length : 1;
  if (chosen.length < tasks || !chosen.length || !chosen.every((row) => complete(row.numbers[metric].seeds))) return null;
  return { method, ...summary(chosen, metric) };
}

// The two methods that are compared below have their colours here too; no other colour tells methods apart.
function groupOf(method) {
  if (method === state.a) return "a";
  if (method === state.b) return "b";
  return data.methods[method].model_free ? "free" : "other";
}
const looksOf = () => ({
  a: [state.a, "a", "square"], b: [state.b, "b", "diamond"], other: ["other methods", "muted", "circle"], free: ["model-free scores", "muted", "x-thin-open"],
});

function drawOverview() {
  const { metric } = over;
  const worstFirst = LOWER_IS_BETTER.has(metric) ? (p, q) => q.ours - p.ours : (p, q) => p.ours - q.ours;
  const rows = unique(rowsOf(over.protocol).map((row) => row.method)).map((m) => methodNumbers(m, metric)).filter(Boolean).sort(worstFirst);
  const names = rows.map((row) => starred(row.method));
  const seeds = unique(rowsOf(over.protocol).map((row) => row.seeds));
  $("over-title").textContent = `${METRICS[metric]}, ${over.cell === ALL ? "mean of all tasks" : over.cell}`;
  $("over-hint").textContent = `${METRICS[metric].slice(0, -2)}: ${MEANINGS[metric]}. In percent, the best at the top; further ${LOWER_IS_BETTER.has(metric) ? "left" : "right"} is better. `
    + (seeds.every((n) => n > 1) ? `The mean of ${seeds.join(" or ")} seeds; bars: from the lowest to the highest seed. ` : "")
    + (rows.some((row) => row.printed !== null) ? "Hollow stars: printed in the paper. " : "") + "* learns from exposed OOD nodes.";
  const traces = Object.entries(looksOf()).map(([group, [label, tone, symbol]]) => {
    const part = rows.filter((row) => groupOf(row.method) === group);
    return {
      type: "scatter", mode: "markers", name: label, x: part.map((row) => row.ours), y: part.map((row) => starred(row.method)), cliponaxis: false,
      error_x: {
        type: "data", symmetric: false, array: part.map((row) => row.high - row.ours), arrayminus: part.map((row) => row.ours - row.low),
        color: colour(tone), thickness: 1.5, width: 3,
      },
      marker: { color: colour(tone), size: 10, symbol, line: { width: symbol.endsWith("open") ? 2.5 : 0, color: colour(tone) } },
      customdata: part.map((row) => [row.low, row.high]), hovertemplate: "%{y}: %{x:.1f}, seeds from %{customdata[0]:.1f} to %{customdata[1]:.1f}<extra></extra>",
    };
  }).filter((trace) => trace.x.length);
  const printed = rows.filter((row) => row.printed !== null);
  if (printed.length) {
    traces.push({
      type: "scatter", mode: "markers", name: "printed in the paper", x: printed.map((row) => row.printed), y: printed.map((row) => starred(row.method)), cliponaxis: false,
      marker: { symbol: "star-open", size: 11, color: colour("fg"), line: { width: 1.6 } }, hovertemplate: "%{y}, paper: %{x:.1f}<extra></extra>",
    });
  }
  $("overview").style.height = `${Math.max(220, 110 + 21 * names.length)}px`;
  draw("overview", traces, {
    xaxis: { title: { text: `${METRICS[metric]}, %`, standoff: 6 }, zeroline: false, range: spanOf(rows, metric), side: "top" },
    yaxis: { categoryorder: "array", categoryarray: names, type: "category", range: [-0.8, names.length - 0.2], ticks: "outside", ticklen: 8, tickcolor: "rgba(0,0,0,0)" },
    margin: { l: 10, r: 22, t: 46, b: 34 }, legend: { orientation: "h", y: -0.01, yanchor: "top", x: 0 },
  });
}

// The whole range of percentages where low is good; otherwise from a round number below the worst.
function spanOf(rows, metric) {
  const ends = rows.flatMap((row) => [row.low, row.high, row.printed ?? row.ours]);
  return LOWER_IS_BETTER.has(metric) ? [0, 100] : [Math.max(0, 10 * Math.floor(Math.min(...ends, 99) / 10)), 100];
}

function drawAgainst() {
  const rows = rowsOf(over.protocol).filter((row) => row.numbers[over.metric]?.printed != null && complete(row.numbers[over.metric].seeds));
  $("against-panel").hidden = !rows.length;
  if (!rows.length) return;
  const side = LOWER_IS_BETTER.has(over.metric) ? "below" : "above";
  $("against-hint").textContent = `${METRICS[over.metric]}, rules ${over.protocol}. A dot is a method on a task: what the paper prints from left to right, `
    + `what was measured here from bottom to top. On the line both agree; ${side} it, ours is better than printed. Hover a dot for its name.`;
  const trace = ([group, [name, tone, symbol]]) => {
    const part = rows.filter((row) => groupOf(row.method) === group);
    return {
      type: "scatter", mode: "markers", name, x: part.map((row) => row.numbers[over.metric].printed), y: part.map((row) => mean(row.numbers[over.metric].seeds)),
      marker: { symbol, color: colour(tone), size: 9, opacity: 0.85 }, text: part.map((row) => `${row.method} on ${row.task}`), cliponaxis: false,
      hovertemplate: "%{text}<br>printed %{x:.1f}, here %{y:.1f}<extra></extra>",
    };
  };
  const looks = looksOf();
  const traces = [
    { type: "scatter", mode: "lines", x: [0, 100], y: [0, 100], name: "equal", line: { color: colour("muted"), dash: "dot", width: 1.2 }, hoverinfo: "skip", showlegend: false },
    ...["other", "b", "a"].map((group) => trace([group, looks[group]])),
  ].filter((t) => t.x.length);
  draw("against", traces, {
    xaxis: { title: { text: `printed ${METRICS[over.metric]}, %` }, zeroline: false, range: [0, 100] },
    yaxis: { title: { text: "measured here, %" }, zeroline: false, range: [0, 100] },
  });
}

function refreshOverview() { drawOverview(); drawAgainst(); }

function setUpOverview() {
  const protocols = unique(data.rows.map((row) => row.protocol));
  over.protocol = fill($("over-protocol"), protocols, "clean");
  const tasks = unique(data.rows.map((row) => row.task));
  over.cell = fill($("over-cell"), tasks.length > 1 ? [ALL, ...tasks] : tasks, ALL);
  fill($("over-metric"), Object.keys(METRICS), "fpr95", (m) => METRICS[m]);
  for (const name of ["protocol", "cell", "metric"]) {
    $(`over-${name}`).addEventListener("change", (event) => { over[name] = event.target.value; refreshOverview(); });
  }
}
