'use strict';

const { message } = require('../cluster');

const EACH = 30;

/** A group goes on where it stopped: each of its lives receives what was sent for it, and nothing twice. */
module.exports = async cluster => {
  const topic = await cluster.createTopic('group_restart', 3);
  const producer = await cluster.producer('group_restart');
  const outcome = {};
  for (let life = 0; life < 3; life++) {
    for (let i = 0; i < EACH; i++) {
      await producer.send(message(topic, `life ${life}, ${i}`));
    }
    const { consumer, inbox } = await cluster.consumer('group_restart', topic, '*');
    await inbox.untilBodies(EACH);
    await committed(consumer, topic, (life + 1) * EACH);
    await consumer.close();
    outcome[`life ${life}`] = inbox.bodies().every(body => body.startsWith(`life ${life},`));
  }
  await producer.close();
  return outcome;
};

/** Waits until the broker knows that so many messages were consumed: a message is in the inbox before it counts. */
async function committed(consumer, topic, count) {
  const queues = consumer._topicSubscribeInfoTable.get(topic);
  const offsets = () => Promise.all(queues.map(queue => consumer._offsetStore.fetchConsumeOffsetFromBroker(queue).catch(() => 0)));
  const deadline = Date.now() + 60000;
  while ((await offsets()).reduce((sum, offset) => sum + offset, 0) < count) {
    if (Date.now() > deadline) {
      throw new Error(`offsets stay at ${await offsets()}`);
    }
    await new Promise(resolve => setTimeout(resolve, 50));
  }
}
