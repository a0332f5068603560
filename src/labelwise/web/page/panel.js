// The side panel: progress of batch and budget, learning curve, training, advice, people.

import { post } from "./api.js";
import { drawCurve } from "./curve.js";
import { count, duration, h, notice, percent, refresh, sentence } from "./dom.js";

const SAFE = "With an apostrophe before texts that Excel and the like would take for formulas";

/** Create the panel; returns a function that updates it. */
export function makePanel(element, desk) {
  const part = (title, name) => {
    const body = h("div", {});
    const section = h("section", { class: `card ${name}`, hidden: true }, h("h2", {}, title), body);
    element.append(section);
    return (value, make) => {
      section.hidden = value === null || value === undefined;
      if (!section.hidden) refresh(body, value, make);
    };
  };
  const parts = {
    stop: part("You could stop here", "stop"),
    batch: part("Batch", "batch"),
    training: part("Model", "training"),
    curve: part("Learning curve", "learning"),
    advice: part("Worth going on?", "advice"),
    people: part("People", "people"),
    files: part("Labels", "files"),
  };
  return () => update(parts, desk);
}

function update(parts, desk) {
  const { state } = desk;
  if (!state) return;
  const reasons = (state.advice ?? []).filter((line) => line.stop);
  parts.stop(state.stop ? reasons : null, (lines) =>
    h(
      "ul",
      {},
      lines.map((line) => h("li", {}, line.says)),
    ),
  );
  parts.batch([state.batch, state.budget, desk.counted], () => progress(state, desk.counted));
  const news = state.training.running || state.training.error;
  parts.training(news && desk.items.length ? state.training : null, (training) =>
    trainingNote(desk, training),
  );
  parts.curve(state.curve?.length ? state.curve : null, (points) => [drawCurve(points), latest(points)]);
  parts.advice(state.advice?.length ? [state.forecast, state.advice] : null, () => advice(state));
  parts.people(state.annotators?.length ? state.annotators : null, (people) => peopleTable(people));
  parts.files([state.labelled ?? state.budget?.labels, state.gone], ([labelled, gone]) => [
    h(
      "p",
      {},
      count(labelled, "item"),
      " labelled. Save as ",
      h("a", { href: "/api/export?format=csv", download: true }, "CSV"),
      ", ",
      h(
        "a",
        { href: "/api/export?format=csv&spreadsheet=true", download: true, title: SAFE },
        "CSV for spreadsheets",
      ),
      " or ",
      h("a", { href: "/api/export?format=jsonl", download: true }, "JSON lines"),
      ".",
    ),
    gone
      ? h("p", {}, `${count(gone, "item")} left out: ${gone === 1 ? "its file is" : "their files are"} gone.`)
      : null,
  ]);
}

function progress({ batch, budget }, counted) {
  const parts = [];
  const done = batch && Math.max(0, Math.min(batch.done + counted, batch.size));
  if (batch) parts.push(bar(`Batch ${batch.number}`, done, batch.size, `${done} of ${batch.size}`));
  const spent = budgetWords(budget);
  if (spent) parts.push(bar("Budget", budget.share ?? 0, 1, spent));
  return parts;
}

function budgetWords(budget) {
  if (budget?.of_labels) return `${budget.labels} of ${count(budget.of_labels, "label")}`;
  if (budget?.of_money) return `${(budget.money ?? 0).toFixed(2)} of ${budget.of_money.toFixed(2)}`;
  if (budget?.of_hours) return `${(budget.hours ?? 0).toFixed(1)} of ${budget.of_hours} h`;
  return "";
}

function bar(name, value, most, words) {
  return h(
    "div",
    { class: "bar" },
    h("span", {}, name),
    h("span", { class: "soft" }, words),
    h("progress", { "aria-label": name, max: most, value: Math.min(value, most) }, words),
  );
}

function latest(points) {
  const last = points.at(-1);
  const write = last.metric === "mse" ? (number) => number.toPrecision(3) : percent;
  const range = last.low === null || last.high === null ? "" : ` (${write(last.low)} to ${write(last.high)})`;
  const words = {
    accuracy: () => `${percent(last.accuracy)} right${range}`,
    prequential: () => `${percent(last.accuracy)} right on a batch before it was trained on${range}`,
    mse: () => `Mean squared error ${write(last.mse)}${range}`,
  };
  return h("p", { class: "soft" }, `${words[last.metric]()} with ${count(last.labels, "label")}`);
}

/** Show the progress of the background process, or its error with a retry button. */
export function trainingNote(desk, training, offer = false) {
  if (training.running) {
    const share = training.total ? { max: training.total, value: training.done ?? 0 } : {};
    return h(
      "div",
      {},
      h(
        "p",
        {},
        sentence(training.stage ?? "training"),
        training.total ? ` (${training.done} of ${training.total})` : "…",
      ),
      h("progress", { "aria-label": "Training", ...share }),
    );
  }
  const retry = async () => {
    try {
      await post("/api/train");
      notice("Training begins");
      desk.look();
    } catch (error) {
      notice(error.message, "bad");
    }
  };
  const button = (text) => h("button", { type: "button", class: "main", onclick: retry }, text);
  if (training.error)
    return h(
      "div",
      { class: "failure", role: "alert" },
      h("p", {}, "Training failed. No label is lost."),
      h("pre", { tabindex: "0", "aria-label": "The error" }, training.error),
      button("Try again"),
    );
  return offer && training.trains !== false ? button("Train now") : null;
}

function advice({ forecast, advice }) {
  const stops = advice.filter((line) => line.stop).length;
  return [
    forecast?.says ? h("p", {}, sentence(forecast.says), forecast.says.endsWith(".") ? "" : ".") : null,
    h(
      "details",
      {},
      h("summary", {}, `${stops} of ${advice.length} rules would stop`),
      h(
        "ul",
        {},
        advice.map((line) => h("li", { class: line.stop ? "yes" : "no" }, sentence(line.says))),
      ),
    ),
  ];
}

function peopleTable(people) {
  const rows = people.map((one) =>
    h(
      "tr",
      {},
      h("th", { scope: "row" }, one.name),
      h("td", {}, count(one.labels, "label")),
      h("td", {}, duration(one.seconds)),
    ),
  );
  return h("table", {}, h("tbody", {}, rows));
}
