// The page: starts a session, shows one of its views, and handles the keys of all views.

import { begin, Refused } from "./api.js";
import { Desk } from "./desk.js";
import { askName } from "./dialog.js";
import { count } from "./format.js";
import { arrange } from "./free_classes.js";
import { GridView } from "./grid_view.js";
import { showHelp } from "./help.js";
import { html, KeyButton, render, useEffect, useEvents, useLayoutEffect, useListener, useRef, useState } from "./html.js";
import { ItemsView } from "./items_view.js";
import { kept } from "./kept.js";
import { useShortcuts } from "./keys.js";
import { LabelView } from "./label_view.js";
import { notice } from "./messages.js";
import { Panel } from "./panel.js";
import { ReviewView } from "./review_view.js";
import { showSettings } from "./settings_dialog.js";

const VIEWS = {
  label: { title: "Label", key: "l", View: LabelView },
  grid: { title: "Grid", key: "g", View: GridView },
  review: { title: "Review", key: "r", View: ReviewView },
  items: { title: "Items", key: "i", View: ItemsView },
};
const PAUSE = 700; // milliseconds between state requests; each request waits for a change

/** The view that the address names; another address, such as #work, leaves it as it is. */
function useView() {
  const read = (now) => (Object.hasOwn(VIEWS, location.hash.slice(1)) ? location.hash.slice(1) : now);
  const [name, setName] = useState(() => read("label"));
  useListener(window, "hashchange", () => setName(read));
  return name;
}

function App({ desk }) {
  useEvents(desk, "items", "classes", "state", "sending");
  const name = useView();
  const undoing = useRef(Promise.resolve());
  // Undo requests run one after the other, even if the key is pressed quickly.
  const undo = () => {
    undoing.current = undoing.current.then(() => undoOne(desk));
  };
  const confirm = async () => {
    try {
      await desk.setConfirm(!desk.confirm);
      notice(desk.confirm ? "Confirm mode: Enter accepts the prediction, a class's key corrects it" : "Confirm mode is off");
    } catch (error) {
      notice(error.message, "bad");
    }
  };
  const help = () => showHelp(desk.outbox.refused);
  useLayoutEffect(() => {
    document.body.dataset.view = name;
    if (name === "label" || name === "grid") desk.borrow(name === "grid");
  }, [name]);
  useListener(document, "visibilitychange", () => document.hidden || desk.renew());
  useListener(window, "pagehide", () => desk.leave());
  useListener(window, "pageshow", (event) => event.persisted && desk.comeBack());
  useShortcuts((event) => {
    if (event.ctrlKey || event.metaKey) return false;
    const view = Object.keys(VIEWS).find((one) => VIEWS[one].key === event.key);
    if (view) return ((location.hash = view), true);
    if (event.key === "?") return (help(), true);
    if (event.key === "C" && !desk.session.regression) return (event.repeat || confirm(), true);
    if (event.key === "u") return (event.repeat || undo(), true);
    if (event.key === "Escape" && (name === "review" || name === "items")) return ((location.hash = "label"), true);
    return false;
  });
  const { View } = VIEWS[name];
  return html`
    <header>
      <h1 class="brand">
        <img src="/static/icon.svg" alt="" width="22" height="22" /><span>${desk.session.campaign}</span>
      </h1>
      <nav aria-label="Views"><${Links} current=${name} disagreements=${desk.state?.disagreements} /></nav>
      <div class="tools">
        <${SendingStatus} desk=${desk} />
        <${Person} desk=${desk} />
        <button type="button" class="plain" onclick=${() => showSettings(desk)}>
          ${desk.session.owner ? "Settings" : "Invite"}
        </button>
        <${KeyButton} text="Help" keys="?" class="plain" onclick=${help} />
      </div>
    </header>
    <main>
      <section id="work" tabindex="-1" aria-label="Items"><${View} key=${name} desk=${desk} undo=${undo} confirm=${confirm} /></section>
      <aside aria-label="Progress"><${Panel} desk=${desk} /></aside>
    </main>
  `;
}

const Links = ({ current, disagreements }) =>
  Object.entries(VIEWS).map(
    ([name, { title, key }]) =>
      html`<a href="#${name}" aria-current=${name === current ? "page" : null} aria-keyshortcuts=${key}>
        ${title}${name === "review" && disagreements ? html`<span class="badge">${disagreements}</span>` : null}
      </a>`,
  );

/** The number of unsent labels, as text and colour. */
function SendingStatus({ desk }) {
  const { entries, refused, away } = desk.outbox;
  const gone = away || desk.away;
  const kind = refused.length ? "bad" : gone ? "away" : entries.length ? "busy" : "saved";
  const [short, more] = {
    bad: [`${count(refused.length, "label")} refused`],
    away: entries.length ? [`${entries.length} unsent`, ", server away"] : ["server away"],
    busy: [`sending ${entries.length}`],
    saved: ["all saved"],
  }[kind];
  const before = useRef();
  useEffect(() => {
    if (kind === "busy") return;
    if (kind === "away" && before.current !== "away")
      notice(`${gone}. You can continue: labels are kept in this browser and sent later`, kind);
    if (kind !== "away" && before.current === "away") notice("The server is back", kind);
    before.current = kind;
  }, [kind]);
  const explain = () => {
    desk.outbox.flush();
    if (refused.length) return notice(`Refused: ${refused.at(-1).error}`, "bad");
    const kept = `${count(entries.length, "label")} kept in this browser; trying again now`;
    return notice(entries.length ? kept : "All labels are saved on the server");
  };
  return html`<button type="button" class="status ${kind}" onclick=${explain}>
    <span>${short}${more ? html`<span class="wide">${more}</span>` : null}</span>
  </button>`;
}

function Person({ desk }) {
  const { name } = desk.session;
  const rename = async () => {
    const chosen = await askName(name);
    if (!chosen || chosen === name) return;
    await desk.giveBack();
    kept.set("name", chosen);
    location.reload();
  };
  return html`<button type="button" class="plain person" aria-label="Labelling as ${name}; change" onclick=${rename}>
    ${name}
  </button>`;
}

async function undoOne(desk) {
  try {
    const { length } = await desk.undo();
    if (length > 1) notice(`${count(length, "item")} undone`);
    else notice(length ? "Undone" : "There is nothing to undo");
    desk.look();
  } catch (error) {
    notice(error.message, "bad");
  }
}

/** Fetch the state of the campaign whenever it changes, while the page is visible. */
async function watchState(desk) {
  for (;;) {
    if (!document.hidden) await desk.look(true);
    await new Promise((resolve) => setTimeout(resolve, PAUSE));
  }
}

async function startSession() {
  let name = kept.get("name") ?? (await askName());
  for (;;) {
    try {
      const session = await begin(name);
      kept.set("name", name);
      return arrange({ ...session, name: session.name ?? name });
    } catch (error) {
      if (error instanceof Refused) {
        notice(error.message, "bad");
        name = await askName();
        continue;
      }
      notice(`${error.message}; trying again`, "away");
      await new Promise((resolve) => setTimeout(resolve, 2000));
    }
  }
}

const session = await startSession();
const desk = new Desk(session);
document.title = `${session.campaign} · labelwise`;
render(html`<${App} desk=${desk} />`, document.getElementById("app"));
desk.outbox.flush();
watchState(desk);
