"use strict";
// Draws the plots from the embedded numbers. All of them share one window of time [view.from, view.to], in ms; what is
// drawn depends on that window alone. Text reaches the page through textContent and canvas, never as HTML.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const LEFT = 132, RIGHT = 12, AXIS = 22;
  const END = Math.max(data.end, 1);
  const SHORTEST_MS = Math.min(1, END);
  const view = { from: 0, to: END };
  const ENDINGS = ["ok", "fail", "info"];
  const KINDS = ["partition", "kill", "pause", "clock", "disk", "network"];
  const HUES = [262, 24, 200, 48, 120, 320, 90, 180, 290, 60];
  const $ = (id) => document.getElementById(id);
  const section = $("plots"), tooltip = $("tooltip"), cursor = $("cursor"), brush = $("brush");

  let theme = {};
  function readTheme() {
    const style = getComputedStyle(document.documentElement);
    for (const name of ["ink", "soft", "line", "grid", "card", "ok", "fail", "info", "open", "red", "accent", "bar-ink", "bar-light", "bar-saturation"])
      theme[name] = style.getPropertyValue("--" + name).trim();
    theme.dark = style.colorScheme.includes("dark");
    sprites.clear();
  }

  function accumulate(column) {
    let sum = 0;
    return column.map((difference) => (sum += difference));
  }

  const columns = data.points.columns, names = data.points.names;
  const points = { count: columns.time.length, time: accumulate(columns.time).map((us) => us / 1000), index: accumulate(columns.index), latency: columns.latency.map((us) => Math.max(us, 1) / 1000), ending: columns.ending, f: columns.f, process: columns.process, key: columns.key, node: columns.node, error: columns.error };
  const lanes = data.lanes.map((lane) => {
    const start = accumulate(lane.start), token = accumulate(lane.token), index = accumulate(lane.index);
    const grants = start.map((us, i) => ({ start: us / 1000, end: (us + lane.end[i]) / 1000, believed: (us + lane.end[i] + lane.believed[i]) / 1000, invoked: (us - lane.invoked[i]) / 1000, token: token[i], index: index[i], process: lane.process[i], node: data.nodes[lane.node[i]], row: lane.row[i], red: lane.red[i], released: data.endings[lane.released[i]] }));
    return { key: lane.key, rows: lane.rows, grants, longest: grants.reduce((most, grant) => Math.max(most, grant.believed - grant.start), 0) };
  });
  const faultKinds = [...new Set(data.faults.map((fault) => fault.kind))];

  // Scales and small helpers -------------------------------------------------------------------------------------

  const x = (time, width) => LEFT + ((time - view.from) / (view.to - view.from)) * (width - LEFT - RIGHT);
  const timeAt = (px, width) => view.from + ((px - LEFT) / (width - LEFT - RIGHT)) * (view.to - view.from);
  const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
  // Hues near red are left to violations.
  const hueOf = (number) => 32 + ((number * 137.508 + 170) % 296);
  const hueOfKind = (kind) => HUES[(KINDS.includes(kind) ? KINDS.indexOf(kind) : KINDS.length + faultKinds.indexOf(kind)) % HUES.length];
  const kindColour = (kind, alpha) => `hsl(${hueOfKind(kind)} ${theme.dark ? 60 : 58}% ${theme.dark ? 66 : 50}% / ${alpha})`;
  const nodeColour = (node) => { const i = Math.max(0, leaderNodes.indexOf(node)); return `hsl(${(205 + i * 47) % 330} ${theme.dark ? "34% 42%" : "42% 72%"})`; };
  const leaderNodes = [...new Set(data.leaders.map((leader) => leader.node))].sort();

  function lowerBound(sorted, value) {
    let low = 0, high = sorted.length;
    while (low < high) { const middle = (low + high) >> 1; if (sorted[middle] < value) low = middle + 1; else high = middle; }
    return low;
  }
  function nice(span, count) {
    const raw = span / count, power = 10 ** Math.floor(Math.log10(raw));
    return [1, 2, 5, 10].map((step) => step * power).find((step) => step >= raw);
  }
  function seconds(ms, step) {
    const decimals = clamp(Math.ceil(-Math.log10(step / 1000) - 1e-9), 0, 6);
    return (ms / 1000).toFixed(decimals) + " s";
  }
  const precise = (ms) => (ms / 1000).toFixed(3) + " s";
  const duration = (ms) => (ms >= 1000 ? (ms / 1000).toPrecision(3) + " s" : ms >= 0.01 ? ms.toPrecision(3) + " ms" : (ms * 1000).toFixed(0) + " µs");
  const number = (value) => value.toLocaleString("en");
  // The longest of some wordings that fits as a whole.
  const fits = (context, wordings, width) => wordings.find((text) => context.measureText(text).width <= width);
  function fit(context, text, width) {
    if (context.measureText(text).width <= width) return text;
    while (text.length > 1 && context.measureText(text + "…").width > width) text = text.slice(0, -1);
    return text + "…";
  }

  function prepare(canvas, height) {
    const width = canvas.clientWidth || section.clientWidth, ratio = window.devicePixelRatio || 1;
    canvas.style.height = height + "px";
    if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
      canvas.width = Math.round(width * ratio); canvas.height = Math.round(height * ratio);
    }
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = '12px system-ui, -apple-system, "Segoe UI", "Liberation Sans", "DejaVu Sans", sans-serif';
    context.textBaseline = "middle";
    return [context, width];
  }

  function clipped(context, width, height, draw) {
    context.save();
    context.beginPath(); context.rect(LEFT, 0, width - LEFT - RIGHT, height); context.clip();
    draw();
    context.restore();
  }

  function frame(context, width, height, withBands = true) {
    const plot = height - AXIS, step = nice(view.to - view.from, 10);
    context.textAlign = "center";
    for (let tick = Math.ceil(view.from / step) * step; tick <= view.to + 1e-9; tick += step) {
      const px = Math.round(x(tick, width)) + 0.5;
      context.strokeStyle = theme.grid; context.beginPath(); context.moveTo(px, 0); context.lineTo(px, plot); context.stroke();
      context.fillStyle = theme.soft; context.fillText(seconds(tick, step), clamp(px, LEFT + 10, width - 20), plot + 13);
    }
    clipped(context, width, plot, () => {
      if (withBands) for (const fault of data.faults) {
        if (fault.state === "skipped") continue;
        const from = x(fault.start, width), to = x(fault.end, width);
        context.fillStyle = kindColour(fault.kind, theme.dark ? 0.13 : 0.09); context.fillRect(from, 0, Math.max(1, to - from), plot);
      }
      context.setLineDash([3, 3]);
      for (const phase of data.phases) {
        if (phase.time <= 0.005 * END || phase.name === "end") continue;
        const px = Math.round(x(phase.time, width)) + 0.5;
        context.strokeStyle = theme.soft; context.globalAlpha = 0.6; context.beginPath(); context.moveTo(px, 0); context.lineTo(px, plot); context.stroke(); context.globalAlpha = 1;
      }
      context.setLineDash([]);
    });
    context.strokeStyle = theme.line; context.beginPath(); context.moveTo(LEFT, plot + 0.5); context.lineTo(width - RIGHT, plot + 0.5); context.stroke();
  }

  function label(context, text, middle) {
    context.textAlign = "left"; context.fillStyle = theme.ink;
    context.fillText(fit(context, text, LEFT - 14), 0, middle);
  }

  function bar(context, from, to, top, height, colour, wordings, ink, whole = false) {
    const width = Math.max(to - from, 1.2);
    context.fillStyle = colour; context.beginPath();
    if (width > 5) context.roundRect(from, top, width, height, 3); else context.rect(from, top, width, height);
    context.fill();
    const shownFrom = Math.max(from, LEFT), room = Math.min(to, context.canvas.clientWidth - RIGHT) - shownFrom - 8;
    if (room < 10) return;
    const text = fits(context, wordings, room) ?? (whole || room < 30 ? "" : fit(context, wordings[0], room));
    context.fillStyle = ink; context.textAlign = "left"; context.fillText(text, shownFrom + 5, top + height / 2 + 0.5);
  }

  // Panels: each knows its height, draws itself, and says what is under the mouse ---------------------------------

  const LANE = 24;
  const faultPanel = {
    canvas: $("faults"),
    rows: faultKinds.length + 1,
    height() { return this.rows * LANE + 16 + AXIS; },
    draw() {
      const height = this.height(), [context, width] = prepare(this.canvas, height);
      frame(context, width, height, false);
      faultKinds.forEach((kind, row) => label(context, kind, row * LANE + LANE / 2));
      label(context, "leader", faultKinds.length * LANE + LANE / 2);
      clipped(context, width, height - AXIS, () => {
        for (const fault of data.faults) {
          const skipped = fault.state === "skipped", row = faultKinds.indexOf(fault.kind);
          bar(context, x(fault.start, width), x(fault.end, width), row * LANE + 3, LANE - 6, kindColour(fault.kind, skipped ? 0.25 : theme.dark ? 0.45 : 0.32), [[fault.shape, fault.targets].filter(Boolean).join(": "), fault.targets, fault.shape], theme.ink);
        }
        data.leaders.forEach((leader, i) => {
          const until = i + 1 < data.leaders.length ? data.leaders[i + 1].time : END;
          bar(context, x(leader.time, width) + 0.5, x(until, width) - 0.5, faultKinds.length * LANE + 3, LANE - 6, nodeColour(leader.node), [`${leader.node} · term ${leader.term}`, leader.node], theme["bar-ink"]);
        });
        context.fillStyle = theme.soft; context.textAlign = "left";
        const shown = data.phases.filter((phase) => phase.name !== "end" && phase.time > 0.005 * END);
        shown.forEach((phase, i) => {
          const from = x(phase.time, width) + 4, until = i + 1 < shown.length ? x(shown[i + 1].time, width) : width - RIGHT;
          if (until - from > 24) context.fillText(fit(context, phase.name, until - from - 2), from, this.rows * LANE + 8);
        });
      });
    },
    at(px, py, width) {
      const row = Math.floor(py / LANE), time = timeAt(px, width), slack = (4 / (width - LEFT - RIGHT)) * (view.to - view.from);
      if (row < faultKinds.length) {
        const fault = data.faults.find((one) => one.kind === faultKinds[row] && one.start - slack <= time && time <= one.end + slack);
        return fault && faultText(fault);
      }
      if (row === faultKinds.length) {
        const leader = data.leaders.filter((one) => one.time <= time).pop();
        return leader && `${leader.node} leads in term ${leader.term}\nsince ${precise(leader.time)}`;
      }
      return null;
    },
  };
  function faultText(fault) {
    return [`${[fault.shape, fault.kind].filter(Boolean).join(" ")} ${fault.id} (${fault.state})`, `${precise(fault.start)} to ${fault.healed ? precise(fault.end) : "the end: never healed"}`, fault.targets && `targets: ${fault.targets}`, fault.detail, fault.evidence && `${fault.state === "skipped" ? "reason" : "evidence"}: ${fault.evidence}`].filter(Boolean).join("\n");
  }

  // Offsets reach from milliseconds to hours, both ways: the axis is linear around 0 and logarithmic beyond 10 ms, which
  // is what a reading may be off by on a busy machine.
  const decadesOf = (ms) => Math.log10(1 + Math.abs(ms) / 10);
  const clockNodes = [...new Set(data.clocks.map((series) => series.node))];
  const hiddenNodes = new Set(), hiddenClocks = new Set();
  const clockLegend = $("clock-legend");
  const clockColour = (node) => `hsl(${hueOf(clockNodes.indexOf(node))} ${theme.dark ? "70% 66%" : "65% 42%"})`;
  const DASHES = { lease: [], wall: [5, 4] };
  const DECADES = Math.max(1, ...data.clocks.map((series) => series.offsets.reduce((most, ms) => Math.max(most, decadesOf(ms)), 0))) * 1.05;
  const offset = (ms) => (ms > 0 ? "+" : ms < 0 ? "−" : "") + (Math.abs(ms) >= 3.6e6 ? +(Math.abs(ms) / 3.6e6).toFixed(2) + " h" : Math.abs(ms) >= 1000 ? +(Math.abs(ms) / 1000).toFixed(3) + " s" : +Math.abs(ms).toFixed(1) + " ms");
  const SILENCE = 2.2 * Math.max(1, ...data.clocks.map((series) => series.times.map((time, i) => time - series.times[i - 1]).slice(1).sort((a, b) => a - b)[series.times.length >> 1] || 0));
  const clockPanel = {
    canvas: $("clocks"),
    height: () => 170 + AXIS,
    y: (ms) => 85 - ((Math.sign(ms) * decadesOf(ms)) / DECADES) * 79,
    shown: (series) => !hiddenNodes.has(series.node) && !hiddenClocks.has(series.clock),
    draw() {
      const height = this.height(), [context, width] = prepare(this.canvas, height);
      frame(context, width, height);
      const ticks = [0], every = Math.ceil(DECADES / 4);
      for (let decade = every; decadesOf(10 ** (decade + 1)) <= DECADES; decade += every) ticks.push(10 ** (decade + 1), -(10 ** (decade + 1)));
      for (const tick of ticks) {
        const py = Math.round(this.y(tick)) + 0.5;
        context.strokeStyle = tick ? theme.grid : theme.line; context.beginPath(); context.moveTo(LEFT, py); context.lineTo(width - RIGHT, py); context.stroke();
        context.fillStyle = theme.soft; context.textAlign = "right"; context.fillText(offset(tick), LEFT - 8, clamp(py, 7, height - AXIS - 7));
      }
      clipped(context, width, height - AXIS, () => {
        context.lineWidth = 1.6; context.lineJoin = "round";
        for (const series of data.clocks) {
          if (!this.shown(series)) continue;
          const first = Math.max(0, lowerBound(series.times, view.from) - 1), last = Math.min(series.times.length, lowerBound(series.times, view.to) + 1);
          context.strokeStyle = context.fillStyle = clockColour(series.node); context.setLineDash(DASHES[series.clock]);
          context.beginPath();
          // Where a node said nothing for a while there is no line.
          for (let i = first; i < last; i++) context[i > first && series.times[i] - series.times[i - 1] < SILENCE ? "lineTo" : "moveTo"](x(series.times[i], width), this.y(series.offsets[i]));
          context.stroke();
          if (last - first < 200) for (let i = first; i < last; i++) { context.beginPath(); context.arc(x(series.times[i], width), this.y(series.offsets[i]), 1.8, 0, 7); context.fill(); }
        }
        context.setLineDash([]); context.lineWidth = 1;
      });
    },
    at(px, py, width) {
      const time = timeAt(px, width), lines = [];
      for (const series of data.clocks) {
        if (!this.shown(series)) continue;
        const after = lowerBound(series.times, time);
        const near = [after - 1, after].filter((i) => i >= 0 && i < series.times.length).sort((a, b) => Math.abs(series.times[a] - time) - Math.abs(series.times[b] - time))[0];
        lines.push(`${series.clock} clock of ${series.node}: ${offset(series.offsets[near])} at ${precise(series.times[near])}`);
      }
      return lines.join("\n") || null;
    },
  };

  const holderPanel = {
    canvas: $("holders"),
    tops() { let top = 4; return lanes.map((lane) => { const from = top; top += this.laneHeight(lane) + 6; return from; }); },
    laneHeight: (lane) => (lanes.length > 16 && lane.rows === 1 ? 16 : Math.max(24, lane.rows * 17)),
    height() { return (lanes.length ? lanes.reduce((sum, lane) => sum + this.laneHeight(lane) + 6, 4) : 30) + AXIS; },
    draw() {
      const height = this.height(), [context, width] = prepare(this.canvas, height), tops = this.tops();
      frame(context, width, height);
      lanes.forEach((lane, i) => label(context, lane.key, tops[i] + this.laneHeight(lane) / 2));
      clipped(context, width, height - AXIS, () => lanes.forEach((lane, i) => {
        const rowHeight = this.laneHeight(lane) / lane.rows, starts = lane.starts ??= lane.grants.map((grant) => grant.start);
        const first = lowerBound(starts, view.from - lane.longest), last = lowerBound(starts, view.to);
        for (const red of [0, 1]) for (let g = first; g < last; g++) {
          const grant = lane.grants[g];
          if (grant.red !== red || grant.believed < view.from) continue;
          const top = tops[i] + grant.row * rowHeight + 1, inner = rowHeight - 2, end = x(grant.end, width);
          if (grant.believed > grant.end) { context.fillStyle = red ? theme.red : theme.soft; context.fillRect(end, top + inner / 2 - 1, x(grant.believed, width) - end, 2); }
          const process = data.processes[grant.process];
          bar(context, x(grant.start, width), end, top, inner, red ? theme.red : `hsl(${hueOf(grant.process)} ${theme["bar-saturation"]} ${theme["bar-light"]})`, [`#${grant.token} · ${process}`, `#${grant.token}`], red ? "#fff" : theme["bar-ink"], true);
        }
      }));
    },
    at(px, py, width) {
      const tops = this.tops(), i = lanes.findIndex((lane, j) => py >= tops[j] && py < tops[j] + this.laneHeight(lane));
      if (i < 0) return null;
      const lane = lanes[i], time = timeAt(px, width), slack = (3 / (width - LEFT - RIGHT)) * (view.to - view.from);
      const row = Math.floor((py - tops[i]) / (this.laneHeight(lane) / lane.rows));
      const grant = lane.grants.filter((one) => one.row === row && one.start - slack <= time && time <= one.believed + slack).sort((a, b) => b.red - a.red || Math.abs(a.start - time) - Math.abs(b.start - time))[0];
      if (!grant) return null;
      return [`key ${lane.key} · token ${grant.token}${grant.red ? " · overlapping or violating" : ""}`, `client ${data.processes[grant.process]}${grant.node ? " at " + grant.node : ""} · event ${grant.index}`, `asked ${precise(grant.invoked)}, granted ${precise(grant.start)}`, `held ${duration(grant.end - grant.start)}, until ${precise(grant.end)}`, grant.believed > grant.end && `and believed in it for ${duration(grant.believed - grant.end)} more`, grant.released ? `release: ${grant.released}` : "never released by its client"].filter(Boolean).join("\n");
    },
  };

  const sprites = new Map();
  const hiddenEndings = new Set(), hiddenOps = new Set();
  function shape(context, f, size) {
    context.beginPath();
    const half = size / 2;
    if (f % 4 === 0) context.arc(half, half, half * 0.72, 0, 7);
    else if (f % 4 === 1) context.rect(half * 0.4, half * 0.4, half * 1.2, half * 1.2);
    else if (f % 4 === 2) { context.moveTo(half, half * 0.2); context.lineTo(size - half * 0.2, size - half * 0.3); context.lineTo(half * 0.2, size - half * 0.3); }
    else { context.moveTo(half, 0); context.lineTo(size, half); context.lineTo(half, size); context.lineTo(0, half); }
    context.fill();
  }
  function sprite(f, ending) {
    const name = f * 4 + ending;
    if (!sprites.has(name)) {
      const canvas = document.createElement("canvas"), ratio = window.devicePixelRatio || 1, size = 7;
      canvas.width = canvas.height = size * ratio;
      const context = canvas.getContext("2d");
      context.scale(ratio, ratio); context.fillStyle = theme[ENDINGS[ending]]; shape(context, f, size);
      sprites.set(name, canvas);
    }
    return sprites.get(name);
  }
  let lowest = Infinity, highest = 0;
  for (const latency of points.latency) { lowest = Math.min(lowest, latency); highest = Math.max(highest, latency); }
  const decades = points.count ? [Math.floor(Math.log10(lowest)), Math.max(Math.ceil(Math.log10(highest)), Math.floor(Math.log10(lowest)) + 1)] : [0, 3];
  const latencyPanel = {
    canvas: $("latency"),
    height: () => 250 + AXIS,
    y(ms) { return 8 + (1 - (Math.log10(ms) - decades[0]) / (decades[1] - decades[0])) * (250 - 14); },
    draw() {
      const height = this.height(), [context, width] = prepare(this.canvas, height);
      frame(context, width, height);
      for (let decade = decades[0]; decade <= decades[1]; decade++) {
        const py = Math.round(this.y(10 ** decade)) + 0.5;
        context.strokeStyle = theme.grid; context.beginPath(); context.moveTo(LEFT, py); context.lineTo(width - RIGHT, py); context.stroke();
        context.fillStyle = theme.soft; context.textAlign = "right"; context.fillText(decade >= 3 ? 10 ** (decade - 3) + " s" : decade <= -3 ? "1 µs" : +(10 ** decade).toFixed(3) + " ms", LEFT - 8, py);
      }
      const first = lowerBound(points.time, view.from), last = lowerBound(points.time, view.to);
      clipped(context, width, height - AXIS, () => {
        context.globalAlpha = last - first > 4000 ? 0.55 : 0.8;
        for (let ending = 0; ending < 3; ending++) if (!hiddenEndings.has(ending)) for (let i = first; i < last; i++)
          if (points.ending[i] === ending && !hiddenOps.has(points.f[i])) context.drawImage(sprite(points.f[i], ending), x(points.time[i], width) - 3.5, this.y(points.latency[i]) - 3.5, 7, 7);
      });
    },
    at(px, py, width) {
      const span = ((view.to - view.from) / (width - LEFT - RIGHT)) * 7;
      const first = lowerBound(points.time, timeAt(px, width) - span), last = lowerBound(points.time, timeAt(px, width) + span);
      let best = -1, nearest = 81;
      for (let i = first; i < last; i++) {
        if (hiddenEndings.has(points.ending[i]) || hiddenOps.has(points.f[i])) continue;
        const distance = (x(points.time[i], width) - px) ** 2 + (this.y(points.latency[i]) - py) ** 2;
        if (distance < nearest) { nearest = distance; best = i; }
      }
      if (best < 0) return null;
      const error = names.error[points.error[best]], key = names.key[points.key[best]], node = names.node[points.node[best]];
      return [`${names.f[points.f[best]]}${key === null ? "" : " " + key} → ${ENDINGS[points.ending[best]]}${error ? ": " + error : ""}`, `${duration(points.latency[best])}, from ${precise(points.time[best])}`, `client ${names.process[points.process[best]]}${node ? " at " + node : ""} · event ${points.index[best]}`].join("\n");
    },
  };

  const rates = data.rates, bins = rates.ok.length;
  const perSecond = (count) => (count * 1000) / rates.width_ms;
  let busiest = 0;
  for (let i = 0; i < bins; i++) busiest = Math.max(busiest, rates.ok[i] + rates.fail[i] + rates.info[i]);
  const ratePanel = {
    canvas: $("rate"),
    height: () => 130 + AXIS,
    draw() {
      const height = this.height(), [context, width] = prepare(this.canvas, height), top = Math.max(1, perSecond(busiest)) * 1.06, y = (value) => 6 + (1 - value / top) * 124;
      frame(context, width, height);
      const step = nice(top, 4);
      for (let tick = 0; tick <= top; tick += step) {
        const py = Math.round(y(tick)) + 0.5;
        context.strokeStyle = theme.grid; context.beginPath(); context.moveTo(LEFT, py); context.lineTo(width - RIGHT, py); context.stroke();
        context.fillStyle = theme.soft; context.textAlign = "right"; context.fillText(number(tick) + "/s", LEFT - 8, Math.min(py, height - AXIS - 6));
      }
      clipped(context, width, height - AXIS, () => stack(context, (time) => x(time, width), y));
    },
    at(px, py, width) {
      const bin = Math.floor(timeAt(px, width) / rates.width_ms);
      if (bin < 0 || bin >= bins) return null;
      return `${seconds(bin * rates.width_ms, rates.width_ms)} to ${seconds((bin + 1) * rates.width_ms, rates.width_ms)}\n` + ENDINGS.map((ending) => `${ending} ${number(+perSecond(rates[ending][bin]).toFixed(1))}/s`).join(" · ");
    },
  };
  function stack(context, toX, toY) {
    const below = new Array(bins).fill(0);
    for (const ending of ENDINGS) {
      context.fillStyle = theme[ending]; context.globalAlpha = 0.8;
      for (let i = 0; i < bins; i++) {
        const value = perSecond(rates[ending][i]);
        if (!value) continue;
        const from = toX(i * rates.width_ms), to = toX(Math.min(END, (i + 1) * rates.width_ms)), gap = to - from > 4 ? 0.75 : 0;
        context.fillRect(from, toY(below[i] + value), to - from - gap, toY(below[i]) - toY(below[i] + value)); below[i] += value;
      }
    }
    context.globalAlpha = 1;
  }

  const OVERVIEW = 40;
  function drawOverview() {
    const [context, width] = prepare($("overview"), OVERVIEW), toX = (time) => LEFT + (time / END) * (width - LEFT - RIGHT), top = Math.max(1, perSecond(busiest));
    for (const fault of data.faults) if (fault.state !== "skipped") { context.fillStyle = kindColour(fault.kind, 0.22); context.fillRect(toX(fault.start), 0, Math.max(1, toX(fault.end) - toX(fault.start)), OVERVIEW); }
    stack(context, toX, (value) => OVERVIEW - 2 - (value / top) * (OVERVIEW - 6));
    context.textAlign = "left"; context.fillStyle = theme.soft; context.fillText("whole run", 0, OVERVIEW / 2);
    for (const lane of lanes) for (const grant of lane.grants) if (grant.red) { context.fillStyle = theme.red; context.fillRect(toX(grant.start) - 1, 0, 2, OVERVIEW); }
    const from = toX(view.from), to = toX(view.to);
    context.fillStyle = theme.card; context.globalAlpha = 0.72; context.fillRect(LEFT, 0, from - LEFT, OVERVIEW); context.fillRect(to, 0, width - RIGHT - to, OVERVIEW); context.globalAlpha = 1;
    context.strokeStyle = theme.accent; context.lineWidth = 1.5; context.beginPath(); context.roundRect(from, 1, Math.max(3, to - from), OVERVIEW - 2, 4); context.stroke(); context.lineWidth = 1;
  }

  // Zoom, pan, tooltips -----------------------------------------------------------------------------------------

  const panels = [faultPanel, clockPanel, holderPanel, latencyPanel, ratePanel].filter((panel) => panel.canvas);
  let asked = false;
  function redraw() {
    if (asked) return;
    asked = true;
    requestAnimationFrame(drawAll);
  }
  function drawAll() {
    asked = false;
    for (const panel of panels) panel.draw();
    drawOverview();
    $("window").textContent = `${precise(view.from)} – ${precise(view.to)}`;
  }
  function show(from, to) {
    const span = clamp(to - from, SHORTEST_MS, END);
    view.from = clamp((from + to) / 2 - span / 2, 0, END - span); view.to = view.from + span;
    redraw();
  }
  const zoom = (factor, around = (view.from + view.to) / 2) => show(around - (around - view.from) * factor, around + (view.to - around) * factor);
  const pan = (ms) => { const span = view.to - view.from, from = clamp(view.from + ms, 0, END - span); show(from, from + span); };

  function hideTooltip() { tooltip.hidden = true; cursor.style.display = "none"; }
  function hover(panel, event) {
    const box = panel.canvas.getBoundingClientRect(), outer = section.getBoundingClientRect(), px = event.clientX - box.left;
    if (px < LEFT || px > box.width - RIGHT) return hideTooltip();
    cursor.style.display = "block"; cursor.style.left = event.clientX - outer.left + "px"; cursor.style.top = $("faults").getBoundingClientRect().top - outer.top + "px";
    let text = panel.at(px, event.clientY - box.top, box.width);
    if (!text && panel !== faultPanel) text = activeFaults(timeAt(px, box.width));
    tooltip.hidden = !text;
    if (!text) return;
    tooltip.textContent = text;
    tooltip.style.left = clamp(event.clientX + 14, 8, Math.max(8, window.innerWidth - tooltip.offsetWidth - 12)) + "px";
    tooltip.style.top = (event.clientY + 18 + tooltip.offsetHeight > window.innerHeight ? event.clientY - tooltip.offsetHeight - 12 : event.clientY + 18) + "px";
  }
  const activeFaults = (time) => data.faults.filter((fault) => fault.state !== "skipped" && fault.start <= time && time <= fault.end).map(faultText).join("\n\n");

  let drag = null;
  for (const panel of panels) {
    panel.canvas.addEventListener("pointerdown", (event) => {
      const box = panel.canvas.getBoundingClientRect();
      if (event.button || event.clientX - box.left < LEFT) return;
      drag = { panel, box, start: event.clientX, from: view.from, to: view.to, moving: event.shiftKey };
      panel.canvas.setPointerCapture(event.pointerId);
    });
    panel.canvas.addEventListener("pointermove", (event) => {
      if (!drag) return hover(panel, event);
      hideTooltip();
      const perPx = (drag.to - drag.from) / (drag.box.width - LEFT - RIGHT);
      if (drag.moving) { const moved = clamp(drag.from - (event.clientX - drag.start) * perPx, 0, END - (drag.to - drag.from)); return show(moved, moved + drag.to - drag.from); }
      const outer = section.getBoundingClientRect(), low = Math.max(drag.box.left + LEFT, Math.min(drag.start, event.clientX)), high = Math.min(drag.box.right - RIGHT, Math.max(drag.start, event.clientX));
      Object.assign(brush.style, { display: "block", left: low - outer.left + "px", width: high - low + "px", top: $("faults").getBoundingClientRect().top - outer.top + "px", bottom: "12px" });
    });
    panel.canvas.addEventListener("pointerup", (event) => {
      if (drag && !drag.moving && Math.abs(event.clientX - drag.start) > 5) {
        const ends = [drag.start, event.clientX].map((px) => timeAt(clamp(px - drag.box.left, LEFT, drag.box.width - RIGHT), drag.box.width)).sort((a, b) => a - b);
        show(...ends);
      }
      drag = null; brush.style.display = "none";
    });
    panel.canvas.addEventListener("pointercancel", () => { drag = null; brush.style.display = "none"; });
    panel.canvas.addEventListener("pointerleave", hideTooltip);
    panel.canvas.addEventListener("dblclick", () => show(0, END));
    panel.canvas.addEventListener("wheel", (event) => {
      const box = panel.canvas.getBoundingClientRect();
      if (event.ctrlKey || event.metaKey) { event.preventDefault(); zoom(1.0025 ** clamp(event.deltaY, -200, 200), clamp(timeAt(event.clientX - box.left, box.width), view.from, view.to)); }
      else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) { event.preventDefault(); pan((event.deltaX / box.width) * (view.to - view.from)); }
    }, { passive: false });
  }
  const overview = $("overview");
  let sliding = null;
  const overviewTime = (event) => { const box = overview.getBoundingClientRect(); return ((event.clientX - box.left - LEFT) / (box.width - LEFT - RIGHT)) * END; };
  overview.addEventListener("pointerdown", (event) => { const at = overviewTime(event), whole = view.to - view.from >= END * 0.999; sliding = whole || at < view.from || at > view.to ? { select: at } : { grab: at - view.from, span: view.to - view.from }; overview.setPointerCapture(event.pointerId); });
  overview.addEventListener("pointermove", (event) => {
    if (!sliding) return;
    const at = overviewTime(event);
    if ("select" in sliding) { if (Math.abs(at - sliding.select) > END / 500) show(Math.max(0, Math.min(at, sliding.select)), Math.min(END, Math.max(at, sliding.select))); }
    else { const from = clamp(at - sliding.grab, 0, END - sliding.span); show(from, from + sliding.span); }
  });
  overview.addEventListener("pointerup", () => { sliding = null; });
  overview.addEventListener("dblclick", () => show(0, END));

  const ACTIONS = { in: () => zoom(0.5), out: () => zoom(2), all: () => show(0, END) };
  for (const button of document.querySelectorAll("[data-zoom]")) button.addEventListener("click", () => ACTIONS[button.dataset.zoom]());
  section.addEventListener("keydown", (event) => {
    const step = (view.to - view.from) / 5;
    const action = { "+": ACTIONS.in, "=": ACTIONS.in, "-": ACTIONS.out, 0: ACTIONS.all, ArrowLeft: () => pan(-step), ArrowRight: () => pan(step) }[event.key];
    if (action && !event.ctrlKey && !event.metaKey) { event.preventDefault(); action(); }
  });
  for (const button of document.querySelectorAll(".show")) button.addEventListener("click", () => {
    const rows = [...button.closest("details").querySelectorAll("tr[data-from]")];
    const from = Math.min(...rows.map((row) => row.dataset.from * 1e3)), to = Math.max(...rows.map((row) => row.dataset.to * 1e3)), margin = Math.max((to - from) * 0.25, 5);
    show(Math.max(0, from - margin), Math.min(END, to + margin));
    section.scrollIntoView({ behavior: "smooth" });
  });
  for (const button of document.querySelectorAll("[data-copy]")) button.addEventListener("click", async () => {
    const target = $(button.dataset.copy);
    try { await navigator.clipboard.writeText(target.textContent); button.textContent = "copied"; }
    catch { getSelection().selectAllChildren(target); button.textContent = "selected"; }
  });

  function legend(host, entries) {
    host.textContent = "";
    for (const { text, colour, mark, dash, hidden, toggle } of entries) {
      const entry = document.createElement(toggle ? "button" : "span"), swatch = document.createElement("canvas"), ratio = window.devicePixelRatio || 1;
      swatch.width = 14 * ratio; swatch.height = 10 * ratio; swatch.style.cssText = "width:14px;height:10px"; swatch.setAttribute("aria-hidden", "true");
      const context = swatch.getContext("2d"); context.scale(ratio, ratio); context.fillStyle = colour;
      if (dash) { context.strokeStyle = colour; context.lineWidth = 1.6; context.setLineDash(dash); context.beginPath(); context.moveTo(0, 5); context.lineTo(14, 5); context.stroke(); }
      else if (mark === undefined) { context.roundRect(0, 0, 14, 10, 3); context.fill(); } else { context.translate(2, 0); shape(context, mark, 10); }
      entry.append(swatch, text);
      if (toggle) { entry.type = "button"; entry.title = "show or hide"; entry.setAttribute("aria-pressed", String(!hidden)); entry.addEventListener("click", () => { toggle(); legends(); redraw(); }); }
      host.append(entry);
    }
  }
  function legends() {
    const flip = (set, value) => () => { if (!set.delete(value)) set.add(value); };
    legend($("fault-legend"), faultKinds.map((kind) => ({ text: kind, colour: kindColour(kind, 0.6) })));
    if (clockLegend) legend(clockLegend, [
      ...clockNodes.map((node) => ({ text: node, colour: clockColour(node), hidden: hiddenNodes.has(node), toggle: flip(hiddenNodes, node) })),
      ...Object.keys(DASHES).filter((clock) => data.clocks.some((series) => series.clock === clock)).map((clock) => ({ text: `${clock} clock`, colour: theme.soft, dash: DASHES[clock], hidden: hiddenClocks.has(clock), toggle: flip(hiddenClocks, clock) })),
    ]);
    legend($("latency-legend"), [
      ...ENDINGS.map((ending, i) => ({ text: ending, colour: theme[ending], hidden: hiddenEndings.has(i), toggle: flip(hiddenEndings, i) })),
      ...names.f.map((f, i) => ({ text: f, colour: theme.soft, mark: i, hidden: hiddenOps.has(i), toggle: flip(hiddenOps, i) })),
    ]);
  }
  function restyle() { readTheme(); legends(); drawAll(); }

  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", restyle);
  addEventListener("resize", redraw);
  addEventListener("beforeprint", () => { for (const one of document.querySelectorAll("details.finding")) one.open = true; restyle(); });
  matchMedia("print").addEventListener("change", restyle);
  restyle();
})();
