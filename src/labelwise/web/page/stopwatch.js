// How long someone looked at an item; time with the page out of sight does not count.

export class Stopwatch {
  constructor() {
    this.restart();
    document.addEventListener("visibilitychange", () => {
      if (document.hidden) this.before += performance.now() - this.since;
      else this.since = performance.now();
    });
  }

  restart() {
    this.before = 0;
    this.since = performance.now();
  }

  get seconds() {
    return (this.before + (document.hidden ? 0 : performance.now() - this.since)) / 1000;
  }
}
