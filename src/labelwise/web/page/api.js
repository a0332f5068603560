// Calls to the server. Two kinds of failure: Away (try again later) and Refused (do not).

export class Away extends Error {}

export class Refused extends Error {}

const PATIENCE = 20000; // milliseconds
const OUTLIVES = 30000; // characters; browsers carry 64 KiB in all on behalf of pages that are gone

let csrf = "";
let annotator = "";
let page = randomWord(); // so that the server knows what was lent to this page

/** Begin a session under a name; the answer holds the campaign, its kind and its classes. */
export async function begin(name) {
  annotator = name;
  const session = await once(`/api/session?name=${encodeURIComponent(name)}`);
  csrf = session.csrf;
  return session;
}

export const get = (path) => once(path);

// What the server will never take, however often it is sent; all else is worth another try.
const FINAL = [400, 404, 413, 422];

/** Change something. A server that was started anew has a new token: fetch it and try once more. */
export async function post(path, body = {}) {
  try {
    return await once(path, body);
  } catch (error) {
    if (error.status !== 403) throw error;
    await begin(annotator);
    return once(path, body);
  }
}

/** The page was left, which is final for the server, and is back: it is another one from now on. */
export function renamePage() {
  page = randomWord();
}

function randomWord() {
  return Array.from(crypto.getRandomValues(new Uint32Array(3)), (part) => part.toString(36)).join("-");
}

async function once(path, body) {
  const headers = { "X-Annotator": encodeURIComponent(annotator) };
  const options = { headers, credentials: "same-origin", signal: AbortSignal.timeout(PATIENCE) };
  if (body !== undefined) {
    const text = JSON.stringify(body);
    Object.assign(headers, { "Content-Type": "application/json", "X-Labelwise-Csrf": csrf });
    headers["X-Labelwise-Page"] = page;
    // What was sent arrives even if the page is closed in the same moment.
    Object.assign(options, { method: "POST", body: text, keepalive: text.length < OUTLIVES });
  }
  let answer, content;
  try {
    answer = await fetch(path, options);
    content = await answer.json().catch(() => null);
  } catch {
    throw new Away("the server does not answer");
  }
  if (answer.ok && content !== null) return content;
  if (answer.ok) throw new Away("the server's answer broke off");
  const message = content?.error ?? `the server answered ${answer.status}`;
  throw Object.assign(FINAL.includes(answer.status) ? new Refused(message) : new Away(message), {
    status: answer.status,
  });
}
