// What pages do beyond links and forms: times in the viewer's zone, keys, plots, and fragments that renew themselves.
// Without it every page still reads and every form still works.
"use strict";

const $ = (what, where = document) => where.querySelector(what);
const $$ = (what, where = document) => [...where.querySelectorAll(what)];
const base = document.documentElement.dataset.base || "";

// --- theme: as the system says, unless the viewer chose
const themes = ["auto", "light", "dark"];
function setTheme(name) {
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  const button = $("#theme");
  if (button) button.textContent = { auto: "◐", light: "☀", dark: "☾" }[name];
  if (button) button.setAttribute("aria-label", `Colours: ${name}`);
}
let theme = localStorage.getItem("theme") || "auto";
setTheme(theme);
$("#theme")?.addEventListener("click", () => {
  theme = themes[(themes.indexOf(theme) + 1) % themes.length];
  localStorage.setItem("theme", theme);
  setTheme(theme);
});

// --- times in the viewer's zone
const short = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" });
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "long" });
function span(seconds) {
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} m`;
  if (minutes < 48 * 60) return minutes % 60 ? `${Math.floor(minutes / 60)} h ${minutes % 60} m` : `${minutes / 60} h`;
  const hours = Math.round(seconds / 3600);
  return hours % 24 ? `${Math.floor(hours / 24)} d ${hours % 24} h` : `${hours / 24} d`;
}
function localTimes(where = document) {
  for (const time of $$("time[datetime]", where)) {
    const when = new Date(time.dateTime);
    if (Number.isNaN(when.getTime())) continue;
    time.title = exact.format(when);
    if ("ago" in time.dataset) {
      const seconds = (Date.now() - when) / 1000;
      time.textContent = seconds < 1 ? "now" : `${span(seconds)} ago`;
    } else time.textContent = short.format(when);
  }
  let before = null;
  for (const label of $$("text[data-at]", where)) {
    const form = label.dataset.form === "hour" ? { hour: "2-digit", minute: "2-digit" } : { month: "short", day: "numeric" };
    const words = new Intl.DateTimeFormat(undefined, form).format(new Date(label.dataset.at));
    const same = before?.parentNode === label.parentNode && before.textContent === words; // a day may begin elsewhere in this zone
    label.textContent = same ? "" : words;
    if (!same) before = label;
  }
}
localTimes();
setInterval(() => localTimes(), 15000);

// --- forms that are sent by their selects, dialogs, confirmations
document.addEventListener("change", (event) => {
  if (event.target.matches("form.filters select")) event.target.form.requestSubmit();
});
document.addEventListener("click", (event) => {
  const opener = event.target.closest("[data-dialog]");
  if (opener) document.getElementById(opener.dataset.dialog)?.showModal();
  const closer = event.target.closest("[data-close]");
  if (closer) closer.closest("dialog")?.close();
});
document.addEventListener("submit", (event) => {
  // An empty field is no filter: it need not stand in the address.
  if (event.target.matches("form.filters")) for (const field of event.target.elements) if (!field.value) field.disabled = true;
  const asked = event.submitter?.dataset.confirm;
  if (asked && !window.confirm(asked)) event.preventDefault();
});
window.addEventListener("pageshow", () => $$("form.filters [disabled]").forEach((field) => (field.disabled = false)));

// --- folds of the kept lines open in place, where the raw log is kept; without this they are links to a page
const unfolded = new WeakMap();
document.addEventListener("click", async (event) => {
  const fold = event.target.closest("a[data-fold]");
  if (!fold || event.button || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
  const row = fold.closest("li");
  if (!row || ("more" in fold.dataset && !row.dataset.of)) return; // the page of raw lines itself: go on to the next
  event.preventDefault();
  if (unfolded.has(row)) {
    const drop = (one) => { unfolded.get(one)?.forEach((line) => { drop(line); line.remove(); }); unfolded.delete(one); };
    drop(row);
    fold.setAttribute("aria-expanded", "false");
    return;
  }
  unfolded.set(row, []);
  fold.setAttribute("aria-expanded", "true"); // now: a renewal of the fragment spares what somebody reads
  try {
    const answer = await fetch(fold.href, { credentials: "same-origin" });
    if (answer.redirected || !answer.ok) throw new Error(answer.statusText);
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html").getElementById("raw");
    if (!fresh) throw new Error("nothing is kept");
    const lines = [...fresh.children];
    for (const line of lines) line.dataset.of = "fold";
    unfolded.set(row, lines);
    row.after(...lines);
    if ("more" in fold.dataset) row.hidden = true;
  } catch {
    location.href = fold.href; // the page says what is wrong
  }
});

// --- copy a text: where the browser does not let us (only https and this machine), the link opens it
document.addEventListener("click", async (event) => {
  const link = event.target.closest("a[data-copy]");
  if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || !navigator.clipboard) return;
  event.preventDefault();
  try {
    const answer = await fetch(link.href, { credentials: "same-origin" });
    if (answer.redirected || !answer.ok) throw new Error(answer.statusText);
    await navigator.clipboard.writeText(await answer.text());
    const words = link.textContent;
    link.textContent = "Copied";
    setTimeout(() => (link.textContent = words), 2000);
  } catch {
    location.href = link.href;
  }
});

// --- draw over bars of a chart: the page is then about their time. Without this, the select and the links do it.
document.documentElement.classList.add("scripted");
document.addEventListener("pointerdown", (event) => {
  const chart = event.target.closest("svg[data-brush]");
  if (!chart || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
  const [since, until, bars, left, top, high] = ["since", "until", "bars", "left", "top", "high"].map((name) => Number(chart.dataset[name]));
  const right = Number(chart.dataset.right);
  const bar = (moved) => {
    const box = chart.getBoundingClientRect();
    const x = ((moved.clientX - box.left) / box.width) * chart.viewBox.baseVal.width;
    return Math.min(bars - 1, Math.max(0, Math.floor(((x - left) / (right - left)) * bars)));
  };
  const began = bar(event);
  let shape = null;
  let ended = began;
  const move = (moved) => {
    if (!shape && Math.abs(moved.clientX - event.clientX) < 6) return; // a click
    if (!shape) {
      shape = document.createElementNS("http://www.w3.org/2000/svg", "rect");
      shape.setAttribute("class", "drawn");
      shape.setAttribute("y", top);
      shape.setAttribute("height", high);
      chart.append(shape);
    }
    ended = bar(moved);
    const step = (right - left) / bars;
    shape.setAttribute("x", left + Math.min(began, ended) * step);
    shape.setAttribute("width", (Math.abs(ended - began) + 1) * step);
  };
  const over = new AbortController();
  const stop = (last) => {
    over.abort();
    if (!shape) return;
    shape.remove();
    if (last.type !== "pointerup") return;
    window.addEventListener("click", (click) => click.preventDefault(), { capture: true, once: true });
    const each = (until - since) / bars;
    const to = new URL(location.href);
    for (const name of ["range", "before"]) to.searchParams.delete(name);
    to.searchParams.set("from", Math.round(since + Math.min(began, ended) * each));
    to.searchParams.set("to", Math.round(since + (Math.max(began, ended) + 1) * each));
    location.href = to;
  };
  window.addEventListener("pointermove", move, { signal: over.signal });
  for (const kind of ["pointerup", "pointercancel"]) window.addEventListener(kind, stop, { signal: over.signal });
});
document.addEventListener("dragstart", (event) => {
  if (event.target.closest?.("svg[data-brush]")) event.preventDefault(); // a bar is a link, and links can be dragged away
});

// --- keys: / search, j k move, Enter opens, g then o s b f j n a r goes, ? help
let at = -1;
let going = false;
const places = { o: "", s: "shift", b: "breakdowns", f: "failures", j: "jobs", n: "nodes", a: "actions", r: "rules", m: "model" };
document.addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey && event.key.toLowerCase() === "k") {
    const all = $("#everything");
    if (all) { event.preventDefault(); all.focus(); all.select(); }
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.matches("input, textarea, select, [contenteditable]")) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (going) {
    going = false;
    if (event.key in places) location.href = `${base}/${places[event.key]}`;
    return;
  }
  const rows = $$("[data-row]");
  if (event.key === "/") {
    const field = $("[data-search]");
    if (field) { event.preventDefault(); field.focus(); field.select(); }
  } else if (event.key === "j" || event.key === "k") {
    if (!rows.length) return;
    rows[at]?.removeAttribute("data-at");
    at = Math.min(rows.length - 1, Math.max(0, at + (event.key === "j" ? 1 : -1)));
    rows[at].setAttribute("data-at", "");
    rows[at].scrollIntoView({ block: "nearest" });
    $("a", rows[at])?.focus({ preventScroll: true });
  } else if (event.key === "g") going = true;
  else if (event.key === "?") $("#keys")?.showModal();
});

// --- plots
function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
function plot(where) {
  const data = JSON.parse($("script", where).textContent);
  where.querySelector(".uplot")?.remove();
  const lines = [{ label: data.x }].concat(
    data.series.map((series, index) => ({
      label: series.name,
      stroke: series.bound ? `${colour("accent")}66` : colour(series.earlier ? "unknown" : ["accent", "warn", "framework", "infrastructure"][index % 4]),
      width: series.earlier || series.bound ? 1 : 1.5,
      dash: series.earlier ? [6, 4] : undefined,
      spanGaps: data.spans || data.series.some((one) => one.earlier), // their steps are not ours
      points: { show: series.values.length < 30 },
    })),
  );
  const axis = { stroke: colour("soft"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line") } };
  const marks = {
    hooks: {
      draw: [
        (u) => {
          const { top, height, left, width } = u.bbox;
          const flag = 5 * devicePixelRatio;
          const mark = (step, ink, whole) => {
            const x = u.valToPos(step, "x", true);
            if (x < left || x > left + width) return;
            u.ctx.strokeStyle = u.ctx.fillStyle = colour(ink);
            u.ctx.beginPath();
            u.ctx.moveTo(x, top);
            u.ctx.lineTo(x, top + (whole ? height : flag));
            u.ctx.stroke();
            if (whole) return;
            u.ctx.beginPath(); // a small flag at the top: the curve stays free
            u.ctx.moveTo(x - flag, top);
            u.ctx.lineTo(x + flag, top);
            u.ctx.lineTo(x, top + flag * 1.6);
            u.ctx.fill();
          };
          u.ctx.save();
          for (const [step, state] of data.saved) mark(step, { spoilt: "bad", begun: "soft" }[state] || "good", false);
          u.ctx.setLineDash([4, 4]);
          if (data.mark !== null && data.mark !== undefined) mark(data.mark, "bad", true);
          u.ctx.restore();
        },
      ],
    },
  };
  // At an axis there is room for some six letters: 2.5e-6, 1.2M.
  const short = (tick) =>
    tick && Math.abs(tick) < 1e-3
      ? Number(tick.toPrecision(4)).toExponential()
      : new Intl.NumberFormat("en", { notation: Math.abs(tick) < 1e5 ? "standard" : "compact", maximumSignificantDigits: 4, useGrouping: false }).format(tick);
  const inner = getComputedStyle(where);
  const size = () => ({ width: Math.max(260, where.clientWidth - parseFloat(inner.paddingLeft) - parseFloat(inner.paddingRight)), height: 220 });
  const bounds = lines.flatMap((_, index) => (data.series[index - 1]?.bound ? [index] : []));
  const figure = new uPlot(
    { ...size(), title: data.title, padding: [null, 24, null, null], // room for half of the last step's number
      scales: { x: { time: false } }, series: lines, bands: bounds.length === 2 ? [{ series: bounds.reverse(), fill: `${colour("accent")}22` }] : [], axes: [axis, { ...axis, size: 64, values: (u, ticks) => ticks.map(short) }], plugins: [marks] },
    [data.xs, ...data.series.map((series) => series.values)],
    where,
  );
  new ResizeObserver(() => figure.setSize(size())).observe(where);
}
function plots(where = document) {
  if (window.uPlot) $$("[data-plot]", where).forEach(plot);
}
plots();

// --- what lives: fragments are fetched again when the service says that something changed
// A burst of events is one renewal. With a thousand jobs somebody makes progress at any moment: pages of all jobs follow that
// every few seconds, and what is rare at once.
const SOON_MS = 400;
const OFTEN_MS = 4000;
const live = $("#live");
const OFTEN = live?.dataset.events.includes("?job=") ? [] : ["job.progress", "job.started"];
let due = Infinity;
let timer = 0;
let renewed = 0;
function renew(event) {
  const wait = OFTEN.includes(event?.type) ? Math.max(SOON_MS, renewed + OFTEN_MS - Date.now()) : SOON_MS;
  if (Date.now() + wait >= due) return;
  due = Date.now() + wait;
  clearTimeout(timer);
  timer = setTimeout(fetchParts, wait);
}
let touched = null; // what is under a finger is not replaced
document.addEventListener("touchstart", (event) => (touched = event.target), { passive: true });
for (const kind of ["touchend", "touchcancel"]) document.addEventListener(kind, () => (touched = null), { passive: true });
async function fetchParts() {
  due = Infinity;
  renewed = Date.now();
  const parts = $$("[data-renew]");
  if (!parts.length) return;
  try {
    const answer = await fetch(location.href, { credentials: "same-origin" });
    if (answer.redirected) return signedOut();
    if (!answer.ok) return;
    const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
    for (const part of parts) {
      if ($("a[data-fold][aria-expanded=true], .drawn", part) || part.contains(touched)) continue; // somebody reads, draws or scrolls there
      if (part.contains(document.activeElement) && document.activeElement.matches("input, textarea, select")) continue;
      const other = fresh.getElementById(part.id);
      if ("follow" in part.dataset && innerHeight + scrollY < document.body.scrollHeight - 120) continue; // somebody reads further up
      if (other && other.innerHTML !== part.dataset.was) {
        part.dataset.was = other.innerHTML;
        for (const one of $$("details[data-keep][open]", part)) $(`details[data-keep="${one.dataset.keep}"]`, other)?.setAttribute("open", "");
        const stay = placeIn(part);
        part.replaceChildren(...other.childNodes);
        stay();
        if ("follow" in part.dataset) window.scrollTo({ top: document.body.scrollHeight });
        localTimes(part);
        plots(part);
      }
    }
  } catch {
    // the service is away: the stream below says so and comes back by itself
  }
}
// Who moves with the keys, has a link in focus, or scrolled a picture or a table sideways, stays there when the fragment under
// it is renewed.
const SIDEWAYS = ".scroll, .body, .log";
function placeIn(part) {
  const scrolled = $$(SIDEWAYS, part).map((one) => one.scrollLeft);
  const of = (link) => (part.contains(link) ? link.getAttribute("href") : null);
  const focused = of(document.activeElement);
  const row = of($("[data-row][data-at] a"));
  const again = (href) => $$("a[href]", part).find((link) => link.getAttribute("href") === href);
  return () => {
    $$(SIDEWAYS, part).forEach((one, index) => { if (scrolled[index]) one.scrollLeft = scrolled[index]; });
    if (row) {
      const found = again(row)?.closest("[data-row]");
      found?.setAttribute("data-at", "");
      if (found) at = $$("[data-row]").indexOf(found);
    }
    if (focused) again(focused)?.focus({ preventScroll: true });
  };
}
let source = null;
let comingBack = 0;
// The service says something every five seconds, if only that nothing happened. A connection may die without a word.
const QUIET_MS = 13000;
let heard = 0;
function hear(event) {
  heard = Date.now();
  if (event) renew(event);
}
function lose(words) {
  live.classList.add("lost");
  live.textContent = words;
}
setInterval(() => {
  if (source?.readyState !== EventSource.OPEN || Date.now() - heard < QUIET_MS) return;
  lose("no answer");
  source.close();
  comingBack = setTimeout(connect, 1000);
}, 2000);
function connect() {
  source = new EventSource(`${base}/${live.dataset.events}`);
  source.onopen = () => { live.classList.remove("lost"); live.textContent = "live"; hear(); renew(); };
  source.onerror = () => {
    lose("reconnecting");
    if (source.readyState !== EventSource.CLOSED) return; // the browser comes back by itself
    fetchParts(); // it was refused: by a service that starts, a proxy before it, or because we are not known any more
    comingBack = setTimeout(connect, 3000);
  };
  const kinds = (live.dataset.kinds || "").split(" ").filter(Boolean);
  for (const kind of kinds) source.addEventListener(kind, hear);
  source.addEventListener("beat", () => hear());
  source.onmessage = hear;
}
function signedOut() {
  source?.close();
  clearTimeout(comingBack);
  if (live) lose("");
  const again = document.createElement("a");
  again.href = location.href;
  again.textContent = "signed out: sign in again";
  live?.replaceChildren(again);
}
if (live && window.EventSource) connect();
