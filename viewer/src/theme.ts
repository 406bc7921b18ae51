// Colours of the page in light mode, dark mode and print.
//
// The style sheet holds them; charts read them from there. Series differ in dash or mark too, never in
// colour alone.

export interface Colours {
  text: string;
  soft: string;
  line: string;
  faint: string;
  ground: string;
  baseline: string;
  costly: string;
  cheaper: string;
  neutral: string;
  stall: string;
  /** After Okabe and Ito, darkened or lightened until each keeps 3:1 against the ground. */
  series: string[];
}

export function colours(): Colours {
  const style = getComputedStyle(document.documentElement);
  const of = (name: string) => style.getPropertyValue(`--${name}`).trim();
  return {
    text: of('text'),
    soft: of('soft'),
    line: of('line'),
    faint: of('faint'),
    ground: of('ground'),
    baseline: of('soft'),
    costly: of('s2'),
    cheaper: of('s3'),
    neutral: of('soft'),
    stall: of('s2'),
    series: ['s1', 's2', 's3', 's4', 's5', 's6', 's7'].map(of),
  };
}

const DASHES = ['solid', 'dashed', 'dotted'] as const;

/** Colour and dash of the nth series: 21 that differ. */
export function look(c: Colours, n: number): { color: string; type: (typeof DASHES)[number] } {
  return {
    color: c.series[n % c.series.length] as string,
    type: DASHES[Math.floor(n / c.series.length) % DASHES.length] as (typeof DASHES)[number],
  };
}

/** The same colour, seen through. */
export function faded(colour: string, alpha: number): string {
  const hex = colour.replace('#', '');
  const [r, g, b] = [0, 2, 4].map(at => parseInt(hex.slice(at, at + 2), 16));
  return `rgba(${r},${g},${b},${alpha})`;
}

export type Theme = 'auto' | 'light' | 'dark';

export function setTheme(theme: Theme): void {
  if (theme === 'auto') delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
}
