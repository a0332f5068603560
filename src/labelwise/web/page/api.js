// Calls to the server. Two kinds of failure: Away (try again later) and Refused (do not).

export class Away extends Error {}

export class Refused extends Error {}

const PATIENCE = 20000; // milliseconds

let csrf = "";
let annotator = "";

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

async function once(path, body) {
  const headers = { "X-Annotator": encodeURIComponent(annotator) };
  const options = { headers, credentials: "same-origin", signal: AbortSignal.timeout(PATIENCE) };
  if (body !== undefined) {
    Object.assign(headers, { "Content-Type": "application/json", "X-Labelwise-Csrf": csrf });
    Object.assign(options, { method: "POST", body: JSON.stringify(body) });
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
