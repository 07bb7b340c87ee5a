"use strict";
// Draws each figure from the specification beside it; what cannot be drawn says so in its place.
(async () => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const config = read("look");
  const views = {};
  await document.fonts.ready;
  for (const figure of document.querySelectorAll("figure.chart")) {
    const plot = figure.querySelector(".plot");
    try {
      const spec = JSON.parse(figure.querySelector("script").textContent);
      const drawn = await vegaEmbed(plot, spec, { config, renderer: "svg", actions: false, ast: true, defaultStyle: true });
      views[figure.id] = drawn.view;
    } catch (error) {
      plot.textContent = `This chart cannot be drawn: ${error.message}`;
      console.error(figure.id, error);
    }
  }
  addEventListener("beforeprint", () => document.querySelectorAll("details").forEach((each) => (each.open = true)));
  if (document.getElementById("tree")) openTree(read("tree"), document.querySelector(".tree"));
  window.beamwood = { views };
  document.documentElement.dataset.drawn = Object.keys(views).length;

  // The tree, a level at a time: what is below a node is made when the node is opened.
  function openTree(nodes, place) {
    place.append(list(nodes, [0], true));
  }

  function list(nodes, numbers, open) {
    const made = document.createElement("ul");
    for (const number of numbers) {
      const item = made.appendChild(document.createElement("li"));
      item.append(nodes[number].below ? branch(nodes, nodes[number], open) : line(nodes[number], "div"));
    }
    return made;
  }

  function branch(nodes, node, open) {
    const made = document.createElement("details");
    made.append(line(node, "summary"));
    made.addEventListener("toggle", () => {
      if (made.open && made.children.length === 1) made.append(list(nodes, node.below, false));
    });
    made.open = open;
    return made;
  }

  function line(node, kind) {
    const made = document.createElement(kind);
    made.className = kind === "div" ? "leaf" : "";
    for (const [style, text] of node.words) {
      const part = made.appendChild(document.createElement(style === "name" ? "b" : "span"));
      part.className = style;
      part.textContent = text;
    }
    return made;
  }
})();
