// The runs of the stepper beside the page: a deep chain takes a tenth of a second, which the page's own thread has not.
import { Core, type Run } from "./core.ts";

export interface Question {
  id: number;
  parents: string; // the tree, as text
  cosine: number;
  forgets: boolean;
  methods: { solver: string; rows: number }[];
}
export interface Answer {
  id: number;
  runs: Run[];
}

let core: Core | undefined;
self.onmessage = ({ data }: MessageEvent<WebAssembly.Module | Question>) => {
  if (data instanceof WebAssembly.Module) {
    core = new Core(data);
    return;
  }
  if (!core) return;
  core.read(data.parents, "parents");
  core.sample(1, data.cosine, data.forgets);
  const runs = data.methods.map(({ solver, rows }) => core!.watch(solver, rows));
  self.postMessage({ id: data.id, runs } satisfies Answer);
};
