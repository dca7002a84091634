// Modules are counted and not named by a hash of where they are, so that every clone builds the same bytes.
module.exports = { optimization: { moduleIds: 'natural', chunkIds: 'named' } };
