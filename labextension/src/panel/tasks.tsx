import { closeIcon } from '@jupyterlab/ui-components';
import * as React from 'react';

import { IconButton } from '../components/button';
import { useNow } from '../components/hooks';
import { LongList } from '../components/list';
import { Section } from '../components/section';
import { State } from '../components/state';
import { equivalent, run } from '../model/equivalent';
import { duration, money, whole } from '../model/format';
import { tasksInOrder } from '../model/lists';
import { taskState } from '../model/states';
import { Translation } from '../model/translation';
import { PoolRow, TaskRow } from '../protocol';
import { CellButton } from './cell';
import { Icon, stopAllIcon } from './icons';
import { PartProps } from './props';
import { Source } from './streams';

const ROW = 24;
const MOST = 216;

function elapsed(task: TaskRow, now: number): string {
  if (task.started_at === null) {
    return '';
  }
  return duration(task.seconds ?? (task.ended_at ?? now) - task.started_at);
}

/** Return the counts of a pool's tasks as text. */
function taskCounts(pool: PoolRow, trans: Translation): string {
  return [
    trans.__('%1 running', whole(pool.running)),
    trans.__('%1 queued', whole(pool.queued)),
    ...(pool.failed ? [trans.__('%1 failed', whole(pool.failed))] : []),
    ...(pool.cancelled ? [trans.__('%1 cancelled', whole(pool.cancelled))] : [])
  ].join(' · ');
}

/** The tasks of a pool, each with the cell that sent it. */
export function Tasks(
  props: PartProps & {
    pool: PoolRow;
    tasks: TaskRow[];
    openCell: (id: string) => void;
    onOutput: (source: Source) => void;
  }
): JSX.Element {
  const { pool, trans } = props;
  const now = useNow(pool.running > 0);
  const tasks = tasksInOrder(props.tasks);
  const unlisted = pool.queued + pool.running - tasks.filter(task => ['queued', 'running'].includes(task.state)).length;
  return (
    <Section name="tasks" title={trans.__('Tasks')} summary={taskCounts(pool, trans)}>
      {tasks.length === 0 && <p className="skyward-Empty">{trans.__('No tasks yet.')}</p>}
      <LongList
        label={trans.__('Tasks of pool %1', pool.name)}
        items={tasks}
        row={ROW}
        most={MOST}
        keyOf={task => `${task.number}`}
        trans={trans}
        render={task => (
          <div
            className="skyward-Task"
            title={[task.reason, task.cost ? money(task.cost) : ''].filter(Boolean).join(' · ') || undefined}
          >
            <CellButton {...props} cell={task.cell} id={task.cell_id} former={task.former} />
            <button
              className="skyward-Task-name"
              title={trans.__('Show only the output of task %1', task.number)}
              onClick={() => props.onOutput({ node: null, task: task.number })}
            >
              {task.title}
            </button>
            {task.yielded > 0 && (
              <span className="skyward-Task-yields">
                {task.yielded === 1 ? trans.__('1 yield') : trans.__('%1 yields', task.yielded)}
              </span>
            )}
            <State {...taskState(task, trans)} />
            <span className="skyward-Task-elapsed">{elapsed(task, now)}</span>
            <Stops {...props} task={task} />
          </div>
        )}
      />
      {unlisted > 0 && (
        <p className="skyward-Empty">
          {unlisted === 1
            ? trans.__('1 more running or queued task is not listed.')
            : trans.__('%1 more running or queued tasks are not listed.', whole(unlisted))}
        </p>
      )}
    </Section>
  );
}

function Stops(props: PartProps & { task: TaskRow }): JSX.Element {
  const { task, trans } = props;
  if (!['queued', 'running'].includes(task.state)) {
    return <></>;
  }
  const one = run('cancel', { pool: task.pool, task: task.number });
  return (
    <span className="skyward-Task-stops">
      {task.cell !== null && <StopCell {...props} cell={task.cell} />}
      <IconButton
        icon={<Icon icon={closeIcon} />}
        title={trans.__('Stop task %1', task.number)}
        equivalent={equivalent(one)}
        onClick={() => void props.send(one)}
      />
    </span>
  );
}

function StopCell(props: PartProps & { cell: number }): JSX.Element {
  const request = run('cancel', { cell: props.cell });
  return (
    <IconButton
      icon={<Icon icon={stopAllIcon} />}
      title={props.trans.__('Stop all tasks of cell [%1]', props.cell)}
      equivalent={equivalent(request)}
      onClick={() => void props.send(request)}
    />
  );
}
