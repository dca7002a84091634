// Hosts one widget as VS Code and Colab do: with the models of ipywidgets and the front end of anywidget, without
// Jupyter. It contains a minimal AMD loader for the two; the test is their kernel.

const loaded = {};

window.Jupyter = { version: '6.5.0' }; // read by the bundle of ipywidgets while it loads
window.requirejs = Object.assign(() => undefined, { config() {} }); // the bundle requests parts of Notebook 6
window.define = (needed, make) => {
  const given = needed.map(name => (name === 'module' ? { id: 'x', uri: `${location.origin}/x.js` } : loaded[name]));
  Object.assign(loaded, { [needed.includes('module') ? '@jupyter-widgets/base' : 'anywidget']: make(...given) });
};

window.host = {
  /** Make the model of a widget, with a comm to the kernel or without one. */
  open(id, state, layout, has_comm) {
    const { LayoutModel } = loaded['@jupyter-widgets/base'];
    const { AnyModel } = loaded.anywidget;
    const widget_manager = {}; // without Jupyter, it has no guaranteed features
    const attributes = { ...state, layout: new LayoutModel(layout, { model_id: 'layout', widget_manager }) };
    this.model = new AnyModel(attributes, { model_id: id, widget_manager });
    const send = this.model.send.bind(this.model);
    this.model.send = (...message) => {
      if (!this.model.comm) {
        throw new Error('there is no comm');
      }
      send(...message);
    };
    if (has_comm) {
      this.connect();
    }
  },

  /** Connect the model to the kernel. */
  connect() {
    this.model.comm = { send: data => void window.toKernel(data) };
    this.model.comm_live = true;
  },

  /** Show the model in another view. */
  async show() {
    const { AnyView } = loaded.anywidget;
    this.view = new AnyView({ model: this.model });
    document.body.append(this.view.el);
    await this.view.render();
  },

  deliver(data) {
    switch (data.method) {
      case 'custom':
        this.model.trigger('msg:custom', data.content, []);
        break;
      case 'update':
        this.model.set(data.state);
        break;
      case 'close':
        this.model.close(true);
        break;
    }
  }
};
