# The labelling page. Build: docker build --tag labelwise .   See docs/deployment.md.
FROM python:3.12-slim AS build
WORKDIR /src
COPY . .
RUN python -m venv /opt/labelwise \
    && /opt/labelwise/bin/pip install --no-cache-dir --constraint constraints.txt '.[web,postgres]'

FROM python:3.12-slim
COPY --from=build /opt/labelwise /opt/labelwise
ENV PATH=/opt/labelwise/bin:$PATH PYTHONUNBUFFERED=1
RUN useradd --create-home labelwise && mkdir /data && chown labelwise /data
USER labelwise
WORKDIR /data
VOLUME /data
EXPOSE 8600
# LABELWISE_TOKEN must be set: outside of this machine the page requires a token.
CMD ["labelwise", "label", "--host", "0.0.0.0", "--no-open"]
