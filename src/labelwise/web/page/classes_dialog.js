// The classes: what they mean; add one; the owner also renames, merges and describes them.

import { post } from "./api.js";
import { openDialog } from "./dialog.js";
import { addClasses } from "./free_classes.js";
import { html, useEvents, useRef } from "./html.js";
import { notice } from "./messages.js";

export function showClasses(desk) {
  const { session } = desk;
  const send = async (body, done) => {
    try {
      await post("/api/classes", body);
      await desk.learnClasses();
      notice(done);
      return true;
    } catch (error) {
      notice(error.message, "bad");
      return false;
    }
  };
  const Adder = () => {
    const field = useRef();
    const add = async (event) => {
      event.preventDefault();
      const name = field.current.value.trim();
      if (!name) return;
      if (session.free) {
        addClasses(session, [{ value: name, name }]);
        desk.classesChanged();
      } else if (!(await send({ name }, `Class ${name} added`))) return;
      field.current.value = "";
    };
    return html`<form class="adder" onsubmit=${add}>
      <input ref=${field} placeholder="Another class" aria-label="New class" autocomplete="off" maxlength="200" />
      <button type="submit">Add</button>
    </form>`;
  };
  const Entry = ({ one }) => {
    const name = useRef();
    const text = useRef();
    const save = async (event) => {
      event.preventDefault();
      const rename = name.current.value.trim();
      const description = text.current.value.trim();
      const merges = rename !== one.name && session.classes.some((other) => other.name === rename);
      const body = { name: one.name, description, ...(rename && rename !== one.name ? { rename } : {}) };
      await send(body, merges ? `${one.name} and ${rename} are one class now` : `Class ${rename} saved`);
    };
    if (!session.owner)
      return html`<li><strong>${one.name}</strong> <span class="soft">${one.description ?? ""}</span></li>`;
    return html`<li>
      <form class="class-entry" onsubmit=${save}>
        <input ref=${name} defaultValue=${one.name} aria-label="Name of ${one.name}" maxlength="200" autocomplete="off" />
        <input
          ref=${text}
          defaultValue=${one.description ?? ""}
          placeholder="What belongs to this class?"
          aria-label="Description of ${one.name}"
          maxlength="1000"
          autocomplete="off"
        />
        <button type="submit">Save</button>
      </form>
    </li>`;
  };
  const Body = () => {
    useEvents(desk, "classes");
    return html`<div class="body">
      ${session.owner
        ? html`<p class="soft">A class that gets the name of another one is merged with it; its labels follow.</p>`
        : null}
      <ul class="class-list">
        ${session.classes.map((one) => html`<${Entry} key=${one.name} one=${one} />`)}
      </ul>
      <${Adder} />
    </div>`;
  };
  return openDialog("Classes", Body, { wide: true });
}
