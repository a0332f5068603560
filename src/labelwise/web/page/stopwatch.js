// Labelling time of an item; time while the page is hidden does not count.

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
