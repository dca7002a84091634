import { Delta, KEPT, Keys, LOGS, RowTypes, PanelSnapshot, TableName, TABLES, Tables, VERSION } from '../protocol';

/** The tables of the panel, each by key. */
export type Rows = { [T in TableName]: Map<string, RowTypes[T]> };

/** Result of a message: applied, messages before it are missing, or it has another version. */
export type Applied = 'applied' | 'gap' | 'incompatible';

/** All rows, or the new and changed rows and the keys of the removed ones. */
export type StoreUpdate = Pick<PanelSnapshot, 'kind' | 'tables'> | Pick<Delta, 'kind' | 'tables' | 'gone'>;

function empty(): Rows {
  return {
    pools: new Map(),
    nodes: new Map(),
    startup_failures: new Map(),
    gauges: new Map(),
    volumes: new Map(),
    tasks: new Map(),
    decisions: new Map(),
    points: new Map(),
    output: new Map(),
    cells: new Map(),
    orphans: new Map(),
    failed_pools: new Map()
  };
}

/** The published state of a kernel's pools. */
export class Store {
  rows: Rows = empty();
  form: PanelSnapshot['form'] = [];

  /** True if there was a snapshot, and no message has been missed since. */
  get isComplete(): boolean {
    return this._session !== '';
  }

  /** Apply a message of the kernel, if it is the next one. */
  apply(message: PanelSnapshot | Delta): Applied {
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
    TABLES.forEach(table => this._add(table, message.tables));
    LOGS.forEach(table => this._trim(table));
  }

  /** Clear everything: the kernel was replaced. */
  clear(): void {
    this.rows = empty();
    this._session = '';
  }

  /** Return the rows of one pool in a table, in order of arrival. */
  of<T extends Exclude<TableName, 'pools' | 'orphans' | 'failed_pools'>>(table: T, pool: string): RowTypes[T][] {
    return [...this.rows[table].values()].filter(row => row.pool === pool);
  }

  private _add<T extends TableName>(table: T, tables: Tables): void {
    for (const [key, row] of Object.entries<RowTypes[T]>(tables[table] ?? {})) {
      this.rows[table].set(key, row);
    }
  }

  private _drop(gone: Keys): void {
    TABLES.forEach(table => gone[table]?.forEach(key => this.rows[table].delete(key)));
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

  /** Drop the oldest rows of an append-only table, as the kernel does. */
  private _trim(table: (typeof LOGS)[number]): void {
    const rows = this.rows[table];
    const most = KEPT[table];
    if (rows.size <= most) {
      return;
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

  private _session = '';
  private _seq = 0;
}
