// Draws plots with uPlot: of the numbers that stand beside a picture, or of those that an address gives.
// The colours are the page's own, so that light and dark follow the reader's choice.
"use strict";

(() => {
  const HEIGHT = 260;
  const NARROW_HEIGHT = 200;
  const NARROW = 500;
  const drawn = new Map(); // place -> { plot, draw }

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const two = (value) => String(value).padStart(2, "0");
  const SIZES = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
  function size(value) {
    let step = 0;
    while (Math.abs(value) >= 1024 && step < SIZES.length - 1) {
      value /= 1024;
      step += 1;
    }
    return `${plain(value)} ${SIZES[step]}`;
  }
  function plain(value) {
    return String(Number(value.toPrecision(3)));
  }
  function seconds(value) {
    if (value !== 0 && Math.abs(value) < 1) return `${plain(value * 1000)} ms`;
    if (Math.abs(value) < 120) return `${plain(value)} s`;
    if (Math.abs(value) >= 7200) return `${plain(value / 3600)} h`;
    const whole = Math.round(value);
    return whole % 60 ? `${Math.floor(whole / 60)}:${two(whole % 60)} min` : `${whole / 60} min`;
  }
  const FORMATS = {
    bytes: size,
    rate: (value) => `${size(value)}/s`,
    seconds,
    ratio: (value) => `${plain(value)}x`,
    share: (value) => `${plain(value * 100)} %`,
    plain,
  };

  // Steps between two ticks, so that what stands beside them is round in its unit.
  const TIMES = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 14400, 43200, 86400];
  const BYTES = SIZES.flatMap((_, power) => [1, 2, 5, 10, 20, 50, 100, 200, 500].map((step) => step * 1024 ** power));
  const STEPS = { seconds: TIMES, bytes: BYTES, rate: BYTES };
  const DAY = 86400;
  const utc = (at) => uPlot.tzDate(new Date(at * 1000), "Etc/UTC");
  function dates(_plot, splits, _axis, _space, step) {
    return splits.map((at) => {
      const date = utc(at);
      const day = `${two(date.getMonth() + 1)}-${two(date.getDate())}`;
      return step >= DAY ? day : `${day} ${two(date.getHours())}:${two(date.getMinutes())}`;
    });
  }

  // A level that a penalty is to fall to, and the instant at which the copy started.
  function marks({ level, mark, words }) {
    return (plot) => {
      const { ctx, bbox } = plot;
      const line = (x0, y0, x1, y1, stroke) => {
        ctx.save();
        ctx.strokeStyle = stroke;
        ctx.setLineDash([6 * devicePixelRatio, 4 * devicePixelRatio]);
        ctx.lineWidth = devicePixelRatio;
        ctx.beginPath();
        ctx.moveTo(x0, y0);
        ctx.lineTo(x1, y1);
        ctx.stroke();
        ctx.restore();
      };
      const text = (said, x, y, align, fill) => {
        ctx.save();
        ctx.fillStyle = fill;
        ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
        ctx.textAlign = align;
        ctx.strokeStyle = colour("--paper");
        ctx.lineWidth = 4 * devicePixelRatio;
        ctx.lineJoin = "round";
        ctx.strokeText(said, x, y);
        ctx.fillText(said, x, y);
        ctx.restore();
      };
      if (Number.isFinite(level)) {
        const y = plot.valToPos(level, "y", true);
        line(bbox.left, y, bbox.left + bbox.width, y, colour("--level"));
        text(`settled: ${plain(level)}x or less`, bbox.left + bbox.width - 4, y - 5, "right", colour("--level"));
      }
      if (Number.isFinite(mark)) {
        const x = plot.valToPos(mark, "x", true);
        const late = x > bbox.left + bbox.width * 0.6;
        line(x, bbox.top, x, bbox.top + bbox.height, colour("--soft"));
        text(words, late ? x - 6 : x + 6, bbox.top + 14 * devicePixelRatio, late ? "right" : "left", colour("--soft"));
      }
    };
  }

  function options(place, { series, format, least, time, span, marked }) {
    const width = Math.max(200, place.clientWidth);
    const line = { stroke: colour("--grid"), width: 1 };
    const axis = { stroke: colour("--soft"), font: "12px system-ui, sans-serif", grid: line, ticks: line };
    const words = (value, write) => (value === null || value === undefined ? "-" : write(value));
    const across = time
      ? { ...axis, space: 70, values: dates }
      : { ...axis, space: 60, incrs: TIMES, values: (_plot, values) => values.map(seconds) };
    return {
      width,
      height: width < NARROW ? NARROW_HEIGHT : HEIGHT,
      tzDate: utc,
      cursor: { drag: { x: true, y: false } },
      scales: {
        x: { time, ...(span ? { range: (_plot, low, high) => (low === null ? span : [Math.min(low, span[0]), Math.max(high, span[1])]) } : {}) },
        y: { range: (_plot, low, high) => [Math.min(0, low ?? 0), Math.max(least, (high ?? 1) * 1.08) || 1] },
      },
      axes: [
        across,
        { ...axis, size: 84, ...(STEPS[format] ? { incrs: STEPS[format] } : {}), values: (_plot, values) => values.map(FORMATS[format]) },
      ],
      series: [
        { label: time ? "began" : "after", value: time ? "{YYYY}-{MM}-{DD} {HH}:{mm}" : (_plot, value) => words(value, seconds) },
        ...series.map((one, index) => ({
          label: one.label,
          stroke: colour(`--s${index}`),
          width: 2,
          spanGaps: true,
          points: { show: one.values.length < 120, size: 5, fill: colour(`--s${index}`) },
          value: (_plot, value) => words(value, FORMATS[format]),
        })),
      ],
      hooks: { draw: marked ? [marks(marked)] : [] },
    };
  }

  function show(place, what) {
    const draw = () => {
      drawn.get(place)?.plot.destroy();
      const plot = new uPlot(options(place, what), [what.x, ...what.series.map((one) => one.values)], place);
      drawn.set(place, { plot, draw });
    };
    draw();
    new ResizeObserver(() => {
      const { plot } = drawn.get(place);
      const width = Math.max(200, place.clientWidth);
      if (width !== plot.width) plot.setSize({ width, height: width < NARROW ? NARROW_HEIGHT : HEIGHT });
    }).observe(place);
  }

  // A figure with a picture: the plot takes its place, and its words.
  function replace(figure) {
    const numbers = JSON.parse(figure.dataset.plot);
    const picture = figure.querySelector(".picture");
    const place = document.createElement("div");
    place.className = "plot";
    place.setAttribute("role", "img");
    place.setAttribute("aria-label", `${numbers.title}: ${picture.querySelector("desc").textContent}`);
    picture.before(place);
    picture.hidden = true;
    show(place, {
      x: numbers.x,
      series: [{ label: numbers.name, values: numbers.y }],
      format: numbers.format,
      span: numbers.span,
      least: Math.max(numbers.least, numbers.level ?? 0) * 1.1,
      time: false,
      marked: { level: numbers.level, mark: numbers.mark, words: "the copy started" },
    });
  }

  // Plots over months. Each `[data-columns]` inside names the columns that it shows.
  async function impact(section) {
    const status = section.querySelector("[data-part=status]");
    let told;
    try {
      const answer = await fetch(section.dataset.impact, { headers: { Accept: "application/json" } });
      if (!answer.ok) throw new Error(`the daemon answers ${answer.status}`);
      told = await answer.json();
    } catch (error) {
      status.textContent = `The plots could not be drawn: ${error.message}`;
      return;
    }
    const { runs } = told; // oldest first
    if (runs.length < 2) {
      status.textContent = "Plots start with the second good run.";
      return;
    }
    status.hidden = true;
    for (const figure of section.querySelectorAll("[data-columns]")) {
      const columns = figure.dataset.columns.split(" ");
      const labels = figure.dataset.labels.split("|");
      const series = columns.map((name, index) => ({ label: labels[index], values: runs.map((run) => run[name]) }));
      if (series.every((one) => one.values.every((value) => value === null))) continue;
      const place = figure.querySelector(".plot");
      figure.hidden = false;
      place.setAttribute("role", "img");
      place.setAttribute("aria-label", figure.querySelector("figcaption").textContent);
      show(place, {
        x: runs.map((run) => Date.parse(run.started_at) / 1000),
        series,
        format: figure.dataset.format,
        least: 0,
        time: true,
        marked: null,
      });
    }
  }

  document.querySelectorAll("figure[data-plot]").forEach(replace);
  document.querySelectorAll("[data-impact]").forEach(impact);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const { draw } of [...drawn.values()]) draw();
  });
})();
