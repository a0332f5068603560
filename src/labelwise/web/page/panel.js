// The side panel: progress of batch and budget, learning curve, training, advice, people.

import { post } from "./api.js";
import { Curve } from "./curve.js";
import { count, duration, percent, sentence, tidy } from "./format.js";
import { html } from "./html.js";
import { notice } from "./messages.js";
import { showQuality } from "./quality.js";

const Card = ({ title, name, children }) =>
  html`<section class="card ${name}">
    <h2>${title}</h2>
    <div>${children}</div>
  </section>`;

export function Panel({ desk }) {
  const { state } = desk;
  if (!state) return null;
  const rules = state.rules ?? [];
  const news = (state.training.running || state.training.error) && desk.items.length > 0;
  return html`
    ${state.stop
      ? html`<${Card} title="You could stop here" name="stop">
          <ul>
            ${rules.filter((line) => line.stop).map((line) => html`<li>${line.says}</li>`)}
          </ul>
        <//>`
      : null}
    <${Card} title="Batch" name="batch"><${Progress} state=${state} counted=${desk.counted} /><//>
    ${news ? html`<${Card} title="Training" name="training"><${TrainingNote} desk=${desk} /><//>` : null}
    ${state.evaluation || state.curve?.length || state.training.note
      ? html`<${Card} title="Model" name="learning">
          ${state.curve?.length ? html`<${Curve} points=${state.curve} />` : null}
          ${state.evaluation ? html`<p class="soft">${sentence(state.evaluation.says)}.</p>` : null}
          ${state.training.note ? html`<p>${sentence(state.training.note)}.</p>` : null}
          ${state.evaluation && !desk.session.regression ? html`<${ClassScores} evaluation=${state.evaluation} />` : null}
        <//>`
      : null}
    ${rules.length
      ? html`<${Card} title="Worth going on?" name="advice"><${Advice} state=${state} /><//>`
      : null}
    ${state.annotators?.length
      ? html`<${Card} title="People" name="people"><${People} people=${state.annotators} /><//>`
      : null}
    <${Card} title="Labels" name="files"><${Files} state=${state} /><//>
  `;
}

function ClassScores({ evaluation: { balanced_accuracy: balanced, macro_f1: f1 } }) {
  return html`${balanced === null
      ? null
      : html`<p class="soft">Mean over the classes: accuracy ${percent(balanced)}${f1 === null ? "" : `, F1 ${percent(f1)}`}.</p>`}
    <button type="button" class="plain link" onclick=${showQuality}>Accuracy per class</button>`;
}

function Progress({ state: { batch, budget, goal, evaluation, labelled, items }, counted }) {
  const score = evaluation?.metric === "accuracy" ? evaluation.value : null;
  const spent = describeBudget(budget);
  // A rolling batch begins again with each new model, so its progress would jump back.
  const [name, begun, size] = batch?.rolling
    ? ["Labelled", labelled, items]
    : [`Batch ${batch?.number}`, batch?.done, batch?.size];
  const done = Math.max(0, Math.min(begun + counted, size));
  return html`${batch ? html`<${Bar} name=${name} value=${done} most=${size} words=${`${tidy(done)} of ${tidy(size)}`} />` : null}
  ${spent ? html`<${Bar} name="Budget" value=${budget.share ?? 0} most=${1} words=${spent} />` : null}
  ${goal ? html`<${Bar} name="Goal" value=${score ?? 0} most=${goal} words=${describeGoal(goal, score)} />` : null}`;
}

const Bar = ({ name, value, most, words }) =>
  html`<div class="bar">
    <span>${name}</span><span class="soft">${words}</span>
    <progress aria-label=${name} max=${most} value=${Math.min(value, most)}>${words}</progress>
  </div>`;

function describeGoal(goal, score) {
  if (score === null) return `${percent(goal)} right`;
  return score >= goal ? `${percent(score)}: reached` : `${percent(score)} of ${percent(goal)}`;
}

function describeBudget(budget) {
  if (budget?.of_labels) return `${budget.labels} of ${count(budget.of_labels, "label")}`;
  if (budget?.of_money) return `${(budget.money ?? 0).toFixed(2)} of ${budget.of_money.toFixed(2)}`;
  if (budget?.of_hours) return `${(budget.hours ?? 0).toFixed(1)} of ${budget.of_hours} h`;
  return "";
}

/** The progress of the background process, or its error with a button to try again. */
export function TrainingNote({ desk, offer = false }) {
  const { training } = desk.state;
  if (training.running) {
    const share = training.total ? { max: training.total, value: training.done ?? 0 } : {};
    const rest = training.total ? ` (${training.done} of ${training.total})` : "…";
    return html`<div>
      <p>${sentence(training.stage ?? "training")}${rest}</p>
      <progress aria-label="Training" ...${share}></progress>
    </div>`;
  }
  const train = async () => {
    try {
      await post("/api/train");
      notice("Training begins");
      desk.look();
    } catch (error) {
      notice(error.message, "bad");
    }
  };
  const button = (text) => html`<button type="button" class="main" onclick=${train}>${text}</button>`;
  if (training.error)
    return html`<div class="failure" role="alert">
      <p>Training failed. No label is lost.</p>
      <pre tabindex="0" role="region" aria-label="The error">${training.error}</pre>
      ${button("Try again")}
    </div>`;
  return offer && training.trains !== false ? button("Train now") : null;
}

function Advice({ state: { forecast, advice, rules } }) {
  const stops = rules.filter((line) => line.stop).length;
  const says = forecast?.says && sentence(forecast.says);
  return html`<p>${advice}</p>
    <details>
      <summary>${stops} of ${rules.length} rules would stop</summary>
      ${says ? html`<p>${says}${says.endsWith(".") ? "" : "."}</p>` : null}
      <ul>
        ${rules.map((line) => html`<li class=${line.stop ? "yes" : "no"}>${sentence(line.says)}</li>`)}
      </ul>
    </details>`;
}

const People = ({ people }) =>
  html`<table>
    <tbody>
      ${people.map(
        (one) =>
          html`<tr>
            <th scope="row">${one.name || "(no name)"}${one.removed ? html` <span class="soft">removed</span>` : null}</th>
            <td>${count(one.labels, "label")}</td>
            <td>${duration(one.seconds)}</td>
          </tr>`,
      )}
    </tbody>
  </table>`;

const SAFE = "With an apostrophe before texts that Excel and the like would take for formulas";

function Files({ state: { labelled, budget, gone, evaluation } }) {
  const csv = "/api/export?format=csv";
  return html`<p>
      ${count(labelled ?? budget?.labels, "item")} labelled. Save as <a href=${csv} download>CSV</a>,${" "}
      <a href="${csv}&spreadsheet=true" download title=${SAFE}>CSV for spreadsheets</a> or${" "}
      <a href="/api/export?format=jsonl" download>JSON lines</a>.
    </p>
    ${evaluation
      ? html`<p>
          The <a href="/api/predictions" download>predictions of all items</a> as CSV for spreadsheets, and the${" "}
          <a href="/api/model" download>trained model</a> for labelwise predict.
        </p>`
      : null}
    ${gone
      ? html`<p>${count(gone, "item")} left out: ${gone === 1 ? "its file is" : "their files are"} gone.</p>`
      : null}`;
}
