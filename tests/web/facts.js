// What can be told of a page without a person: whether it fits, what is labelled, whether its words can be read.
() => {
  const visible = (element) => {
    const style = getComputedStyle(element);
    const box = element.getBoundingClientRect();
    return style.visibility === "visible" && style.display !== "none" && box.width > 1 && box.height > 1;
  };
  const name = (element) => {
    const words = (element.textContent || "").trim().replace(/\s+/g, " ").slice(0, 40);
    return `${element.tagName.toLowerCase()}${element.id ? "#" + element.id : ""} "${words}"`;
  };

  // --- colours, as WCAG 2.2 has them (1.4.3) ---
  const parts = (colour) => {
    const [red, green, blue, alpha = 1] = (colour.match(/[\d.]+/g) || ["0", "0", "0", "0"]).map(Number);
    return { red, green, blue, alpha };
  };
  const over = (above, below) => {
    const mix = (one) => above[one] * above.alpha + below[one] * (1 - above.alpha);
    return { red: mix("red"), green: mix("green"), blue: mix("blue"), alpha: 1 };
  };
  const luminance = ({ red, green, blue }) => {
    const [r, g, b] = [red, green, blue].map((value) => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const backdrop = (element) => {
    const layers = [];
    for (let one = element; one; one = one.parentElement) layers.push(parts(getComputedStyle(one).backgroundColor));
    const canvas = matchMedia("(prefers-color-scheme: dark)").matches ? 18 : 255;
    return layers.reverse().reduce((below, above) => over(above, below), { red: canvas, green: canvas, blue: canvas, alpha: 1 });
  };
  const opacity = (element) => {
    let whole = 1;
    for (let one = element; one; one = one.parentElement) whole *= Number(getComputedStyle(one).opacity);
    return whole;
  };
  const faint = [];
  let texts = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !visible(element) || element.closest("script, style, noscript, title, desc")) continue;
    texts += 1;
    const style = getComputedStyle(element);
    const ink = parts(element.closest("svg") ? style.fill : style.color);
    const ground = backdrop(element);
    const [high, low] = [luminance(over({ ...ink, alpha: ink.alpha * opacity(element) }, ground)), luminance(ground)].sort((a, b) => b - a);
    const contrast = (high + 0.05) / (low + 0.05);
    const points = parseFloat(style.fontSize);
    const large = points >= 24 || (points >= 18.66 && Number(style.fontWeight) >= 700);
    if (contrast < (large ? 3 : 4.5)) faint.push(`${contrast.toFixed(2)}: ${name(element)}`);
  }

  // --- labels and order ---
  const labelled = (element) =>
    element.getAttribute("aria-label") || element.getAttribute("aria-labelledby") || (element.labels && element.labels.length);
  const unlabelled = [
    ...[...document.querySelectorAll("input:not([type=hidden]), select, textarea, progress, meter")].filter((one) => !labelled(one)),
    ...[...document.querySelectorAll("img")].filter((one) => !one.hasAttribute("alt")),
    ...[...document.querySelectorAll("svg")].filter((one) => !one.closest("[aria-hidden=true]") && !one.querySelector(":scope > title")),
    ...[...document.querySelectorAll("canvas")].filter((one) => !one.closest("[role=img][aria-label]")),
    ...[...document.querySelectorAll("a[href], button")].filter((one) => !one.textContent.trim() && !labelled(one)),
    ...[...document.querySelectorAll("table")].filter((one) => !one.querySelector("th")),
    ...[...document.querySelectorAll("[tabindex='0']")].filter((one) => !labelled(one)),
  ].map(name);
  const identifiers = [...document.querySelectorAll("[id]")].map((one) => one.id);
  const dangling = [...document.querySelectorAll("[aria-labelledby], label[for]")]
    .flatMap((one) => (one.getAttribute("aria-labelledby") || one.getAttribute("for")).split(" "))
    .filter((id) => !identifiers.includes(id));
  const wide = [...document.body.querySelectorAll("*")]
    .filter((one) => one.getBoundingClientRect().right > innerWidth + 1 && visible(one))
    .slice(0, 5)
    .map(name);

  return {
    language: document.documentElement.lang,
    title: document.title,
    landmarks: ["header", "nav", "main"].filter((one) => document.querySelectorAll(one).length > 0),
    headings: [...document.querySelectorAll("h1, h2, h3, h4")].map((one) => Number(one.tagName[1])),
    twice: identifiers.filter((id, index) => identifiers.indexOf(id) !== index),
    unlabelled,
    dangling,
    faint,
    texts,
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    wide,
    inline: document.querySelectorAll("style, [onclick], [onload], script:not([src]):not([type='application/json'])").length,
    elsewhere: [...document.querySelectorAll("[src], link[href]")]
      .map((one) => one.src || one.href)
      .filter((address) => new URL(address, location).origin !== location.origin),
  };
}
