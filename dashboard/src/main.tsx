import { render } from "preact";
import { takeToken } from "./api.js";
import { App } from "./app.js";
import "uplot/dist/uPlot.min.css";
import "./page.css";

takeToken();
const theme = localStorage.getItem("batchweave-theme");
if (theme === "light" || theme === "dark") document.documentElement.dataset["theme"] = theme;
render(<App />, document.getElementById("app") as HTMLElement);
