'use strict';

const { message } = require('../cluster');

/**
 * What a broker with access control lets users do. The scenario AccessControl in Java made the user bob, who may use the topic
 * orders, and nothing else.
 */
module.exports = async cluster => {
  const bob = { accessKeyId: 'bob', accessKeySecret: 'bob-secret' };
  const send = async (topic, credentials) => {
    const producer = await cluster.producer('signed', credentials);
    try {
      await producer.tryToFindTopicPublishInfo(topic);
      const queue = { brokerName: 'broker-a', queueId: 0, topic };
      return (await producer.sendKernelImpl(message(topic, 'signed, from Node: größe', { tags: 'node' }), queue)).sendStatus;
    } catch (error) {
      return `${error.code} ${error.message.replace(/\d+\.\d+\.\d+\.\d+(:\d+)?/g, '<address>')}`;
    }
  };
  const outcome = {
    allowed: await send('orders', bob),
    'another topic': await send('bills', bob),
    'wrong secret': await send('orders', { ...bob, accessKeySecret: 'guessed' }),
    'unknown user': await send('orders', { accessKeyId: 'mallory', accessKeySecret: 'x' }),
    unsigned: await send('orders', {}),
  };
  const { consumer, inbox } = await cluster.consumer('signed', 'orders', 'node', { options: bob });
  await inbox.untilBodies(1);
  await consumer.close();
  outcome.received = inbox.bodies();
  return outcome;
};
