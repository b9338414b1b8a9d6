'use strict';

const { message } = require('../cluster');

const READ_ONLY = 4;

/** What is refused, and with which code. */
module.exports = async cluster => {
  const producer = await cluster.producer('refusals', { retryTimesWhenSendFailed: 0 });
  const readOnly = await cluster.createTopic('refusals_read_only', 1, READ_ONLY);
  const topic = await cluster.createTopic('refusals', 1);
  await producer.send(message(topic, 'so that the client knows the broker'));
  const client = producer._mqClient;
  const queue = { brokerName: 'broker-a', queueId: 0, topic: readOnly };
  const refused = async call => {
    try {
      await call();
      return 'nothing refused';
    } catch (error) {
      return `${error.name} ${error.code}`;
    }
  };
  const outcome = {
    'topic that nobody created': await refused(() => producer.send(message(cluster.name('missing'), 'x'))),
    'topic that may only be read': await refused(() => producer.sendKernelImpl(message(readOnly, 'x'), queue)),
    'queue that is not there': await refused(() => producer.sendKernelImpl(message(topic, 'x'), { ...queue, topic, queueId: 9 })),
    'illegal name of a topic': await refused(() => cluster.createTopic('no spaces please', 1)),
    'name of a topic of the system': await refused(() => cluster.createTopicNamed('TBW102', 1, 6)),
    'properties of 33 KB': await refused(() => producer.send(message(topic, 'x', { properties: { large: 'v'.repeat(33000) } }))),
    'members of no group': await refused(() => client.getConsumerIdListByGroup(cluster.broker, cluster.name('nobody'), 5000)),
    'offset of no group': await refused(() => client.queryConsumerOffset(
      cluster.broker, { consumerGroup: cluster.name('nobody'), topic: cluster.name('missing'), queueId: 0 }, 5000)),
  };
  await producer.close();
  return outcome;
};
