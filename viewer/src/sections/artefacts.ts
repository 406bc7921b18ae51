// Artifacts section: size, rate and content of what each variant wrote.

import { axisLook, tip, tipLook } from '../chart';
import { analysed, type Page } from '../data';
import { el, tableElement, type Table } from '../dom';
import { Figure } from '../figure';
import { bytes, count, num, share } from '../format';

interface Left {
  run: number;
  runName: string;
  arm: string;
  title: string;
  kind: string;
  bytes: number;
  bytesPerS: number | null;
  linkMbit: number | null;
  packets: number | null;
  received: number | null;
  dropped: number | null;
  queries: number | null;
  countedBy: string | null;
  executed: number;
  caught: number | null;
  encrypted: boolean;
}

const caughtText = (a: Left) => (a.encrypted ? 'encrypted' : share(a.caught));

export function artefactSection(page: Page): HTMLElement {
  const section = el('section', { id: 'artefacts' }, el('h2', {}, 'Artefacts'));
  const several = page.runs.length > 1;
  const left: Left[] = [
    ...analysed(page).flatMap(({ run, result, index }) =>
      result.arms.flatMap(arm =>
        arm.artefact
          ? [
              {
                run: index,
                runName: run.name,
                arm: arm.name,
                title: arm.title,
                kind: arm.artefact.kind,
                bytes: arm.artefact.bytes,
                bytesPerS: arm.artefact.bytes_per_s,
                linkMbit: arm.artefact.link_mbit_per_s,
                packets: arm.artefact.packets,
                received: arm.artefact.received,
                dropped: arm.artefact.dropped,
                queries: arm.artefact.queries,
                countedBy: arm.artefact.counted_by,
                executed: arm.executed,
                caught: arm.captured_ratio,
                encrypted: arm.artefact.encrypted ?? false,
              },
            ]
          : [],
      ),
    ),
  ];
  if (left.length === 0) {
    section.append(el('p', { class: 'empty' }, 'No variant wrote any output.'));
    return section;
  }
  const table = (): Table => ({
    head: [
      'variant',
      'description',
      'run',
      'kind',
      'bytes',
      'bytes/s',
      'link Mb/s',
      'packets',
      'received by filter',
      'dropped by kernel',
      'queries found',
      'counted by',
      'statements executed',
      'share captured',
    ],
    rows: left.map(a => [
      a.arm,
      a.title,
      a.runName,
      a.kind,
      a.bytes,
      a.bytesPerS,
      a.linkMbit,
      a.packets,
      a.received,
      a.dropped,
      a.queries,
      a.countedBy,
      a.executed,
      a.encrypted ? 'encrypted' : a.caught,
    ]),
    words: [0, 1, 2, 3, 11],
  });
  const readable: Table = {
    head: [
      'variant',
      'description',
      ...(several ? ['run'] : []),
      'kind',
      'in windows',
      'per second',
      'link to carry it',
      'packets',
      'dropped',
      'queries found',
      'executed',
      'captured',
    ],
    rows: left.map(a => [
      a.arm,
      a.title,
      ...(several ? [a.runName] : []),
      a.kind,
      bytes(a.bytes),
      a.bytesPerS === null ? '–' : `${bytes(a.bytesPerS)}/s`,
      a.linkMbit === null ? '–' : `${num(a.linkMbit)} Mb/s`,
      count(a.packets),
      count(a.dropped),
      count(a.queries),
      count(a.executed),
      caughtText(a),
    ]),
    words: several ? [0, 1, 2, 3] : [0, 1, 2],
  };
  section.append(tableElement(readable, 'Output of each variant'));
  const fast = left.filter(a => a.bytesPerS !== null);
  if (fast.length === 0) return section;
  const arms = [...new Set(fast.map(a => a.arm))];
  const figure = new Figure({
    id: 'artefacts',
    title: 'Bytes written per second of window',
    hint: 'A 100 Mb/s link carries 12.5 MB/s, a 1 Gb/s link 125 MB/s.',
    label: () => `Bar chart. ${fast.map(a => `${a.arm} ${bytes(a.bytesPerS)} per second`).join('; ')}.`,
    height: () => 70 + arms.length * (several ? 14 + 12 * page.runs.length : 22),
    table,
    shortTable: () => readable,
    option: ({ colours: c, width }) => {
      const room = Math.min(width < 560 ? 90 : 130, 26 + 7 * Math.max(...arms.map(name => name.length)));
      return {
        grid: { left: room, right: 84, top: 8, bottom: 44 },
        xAxis: {
          ...axisLook(c),
          type: 'value',
          name: 'MB/s',
          nameLocation: 'middle',
          nameGap: 28,
        },
        yAxis: {
          ...axisLook(c),
          type: 'category',
          inverse: true,
          data: arms,
          axisTick: { show: false },
          axisLabel: {
            color: c.text,
            interval: 0,
            width: room - 14,
            overflow: 'truncate',
            hideOverlap: false,
          },
        },
        tooltip: {
          trigger: 'item',
          ...tipLook(c),
          formatter: (hit: { dataIndex: number; seriesIndex: number }) => {
            const a = fast.find(
              a => a.arm === arms[hit.dataIndex] && a.run === runsOf(fast)[hit.seriesIndex],
            );
            if (!a) return '';
            return tip(`${a.arm}: ${a.title}`, [
              ['written', `${bytes(a.bytesPerS)}/s`],
              ['in all windows', bytes(a.bytes)],
              ['captured', caughtText(a)],
            ]);
          },
        },
        series: runsOf(fast).map((run, at) => ({
          type: 'bar',
          name: page.runs[run]?.name ?? '',
          barMaxWidth: 14,
          itemStyle: { color: c.series[at % c.series.length] },
          data: arms.map(arm => {
            const found = fast.find(a => a.arm === arm && a.run === run);
            return found ? (found.bytesPerS ?? 0) / 1e6 : null;
          }),
          label: {
            show: true,
            position: 'right',
            color: c.text,
            fontSize: 11,
            formatter: (hit: { value: number | null }) =>
              hit.value === null ? '' : `${bytes(hit.value * 1e6)}/s`,
          },
        })),
      };
    },
  });
  section.append(figure.element);
  return section;
}

const runsOf = (left: Left[]) => [...new Set(left.map(a => a.run))];
