'use strict';

const crypto = require('crypto');
const { message } = require('../cluster');

const MAX_BODY = 4 * 1024 * 1024;

/** The largest body, and one byte more; no body at all; a group with every character that a name may have. */
module.exports = async cluster => {
  const topic = await cluster.createTopic('boundaries-%|_AZaz09', 1);
  const producer = await cluster.producer('boundaries', { compressMsgBodyOverHowmuch: Infinity });
  const largest = crypto.randomBytes(MAX_BODY);
  const outcome = {};
  outcome['4 MiB'] = await answer(producer, message(topic, largest, { tags: 'largest' }));
  outcome['4 MiB + 1 byte'] = await answer(producer, message(topic, Buffer.concat([largest, Buffer.from('1')])));
  outcome['no body'] = await answer(producer, message(topic, '', { tags: 'none' }));
  outcome['one byte'] = await answer(producer, message(topic, '1', { tags: 'one' }));
  await producer.close();
  const { consumer, inbox } = await cluster.consumer('boundaries-%|_AZaz09', topic, '*');
  await inbox.until(({ messages }) => messages.some(({ tags }) => tags === 'one'), 'the last one');
  await consumer.close();
  for (const { tags, body } of inbox.messages) {
    outcome[`received, ${tags}`] = body === undefined || body === null ? 'nothing' : body.length;
  }
  outcome['largest is whole'] = inbox.messages.some(({ tags, body }) => tags === 'largest' && largest.equals(body));
  return outcome;
};

async function answer(producer, each) {
  try {
    return (await producer.send(each)).sendStatus;
  } catch (error) {
    return error.code === undefined ? error.message.replace(/cost.*/, '') : `code ${error.code}`;
  }
}
