'use strict';

const { message } = require('../cluster');

const TAGS = ['red', 'green', 'blue', 'AaAa', 'BBBB', 'größe', undefined];
const EACH = 10;

/** Consumers receive the tags that they asked for; AaAa and BBBB have the same hash code. */
module.exports = async cluster => {
  const topic = await cluster.createTopic('tag_filter', 2);
  const producer = await cluster.producer('tag_filter');
  for (let i = 0; i < EACH; i++) {
    for (const tags of TAGS) {
      await producer.send(message(topic, `${tags}-${i}`, { tags }));
    }
  }
  await producer.close();
  const outcome = {};
  const wanted = { '*': TAGS.length, 'red || blue': 2, AaAa: 1, 'größe||nobody': 1 };
  await Promise.all(Object.entries(wanted).map(async ([expression, tags], number) => {
    const { consumer, inbox } = await cluster.consumer(`tag_filter_${number}`, topic, expression);
    await inbox.untilBodies(tags * EACH);
    await consumer.close();
    outcome[expression] = { bodies: inbox.bodies().length, tags: [...new Set(inbox.messages.map(each => each.tags))].sort() };
  }));
  return outcome;
};
