declare module "virtual:canopy" {
  export const treeFiles: { name: string; source: string; text: string }[];
  export const repository: string; // "" while there is none
  export const coreUrl: string;
  export const resultsUrl: string;
}
