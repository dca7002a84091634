import { Delta, KEPT, Snapshot, Tables, VERSION } from '../protocol';

/** The tables of the panel, each by key. */
export type Rows = { [T in keyof Tables]: Map<string, Tables[T]> };

/** Result of a message: applied, messages before it are missing, or it has another version. */
export type Applied = 'applied' | 'gap' | 'incompatible';

/** All rows, or the new and changed rows and the keys of the removed ones. */
export type StoreUpdate = Pick<Snapshot, 'kind' | 'tables'> | Pick<Delta, 'kind' | 'tables' | 'gone'>;

function empty(): Rows {
  return {
    pools: new Map(),
    nodes: new Map(),
    startup_failures: new Map(),
    gauges: new Map(),
    tasks: new Map(),
    decisions: new Map(),
    points: new Map(),
    output: new Map(),
    cells: new Map(),
    orphans: new Map()
  };
}

/** The published state of a kernel's pools. */
export class Store {
  rows: Rows = empty();
  form: Snapshot['form'] = [];

  /** True if there was a snapshot, and no message has been missed since. */
  get isComplete(): boolean {
    return this._session !== '';
  }

  /** Apply a message of the kernel, if it is the next one. */
  apply(message: Snapshot | Delta): Applied {
    if (message.version !== VERSION) {
      return 'incompatible';
    }
    if (message.kind === 'snapshot') {
      this.form = message.form;
      this._session = message.session;
    } else if (message.session !== this._session || message.seq !== this._seq + 1) {
      this._session = '';
      return 'gap';
    }
    this._seq = message.seq;
    this.take(message);
    return 'applied';
  }

  /** Apply the rows of a message, without checking its number. */
  take(message: StoreUpdate): void {
    if (message.kind === 'snapshot') {
      this.rows = empty();
    }
    this._drop('gone' in message ? message.gone : {});
    for (const [table, rows] of Object.entries(message.tables)) {
      const known = this.rows[table as keyof Tables] as Map<string, unknown> | undefined;
      for (const [key, row] of Object.entries(rows)) {
        known?.set(key, row);
      }
    }
    this._trim();
  }

  /** Clear everything: the kernel was replaced. */
  clear(): void {
    this.rows = empty();
    this._session = '';
  }

  /** Return the rows of one pool in a table, in order of arrival. */
  of<T extends Exclude<keyof Tables, 'pools' | 'orphans'>>(table: T, pool: string): Tables[T][] {
    const rows = this.rows[table] as Map<string, Tables[T]>;
    return [...rows.values()].filter(row => row.pool === pool);
  }

  private _drop(gone: Delta['gone']): void {
    for (const [table, keys] of Object.entries(gone)) {
      const rows = this.rows[table as keyof Tables];
      keys.forEach(key => rows?.delete(key));
    }
    for (const pool of gone.pools ?? []) {
      for (const rows of Object.values(this.rows)) {
        for (const key of [...rows.keys()]) {
          if (key.startsWith(`${pool}/`)) {
            rows.delete(key);
          }
        }
      }
    }
  }

  /** Drop the oldest rows of append-only tables, as the kernel does. */
  private _trim(): void {
    for (const [table, most] of Object.entries(KEPT)) {
      const rows = this.rows[table as 'output'];
      if (rows.size <= most) {
        continue;
      }
      const counts = new Map<string, number>();
      for (const row of rows.values()) {
        counts.set(row.pool, (counts.get(row.pool) ?? 0) + 1);
      }
      for (const [key, row] of rows) {
        const count = counts.get(row.pool) ?? 0;
        if (count > most) {
          rows.delete(key);
          counts.set(row.pool, count - 1);
        }
      }
    }
  }

  private _session = '';
  private _seq = 0;
}
